// Configurations of nginx: what is accepted can be rehearsed.

#include "fuzz.h"

#include "rehearse/route/rehearsed.h"

using namespace ratelimit::rehearse;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const auto input = text_of(data, size);
    const auto format = text_format(combined_format, Escape::standard, "combined");
    try {
        auto conf = read_http_conf(parse_conf(input, "fuzz"));
        for (const NamedFormat& one : conf->formats) {
            must(!one.make()->names().empty());
        }
        Rehearsed rehearsed(std::move(conf), *format, "", {});
        format->begin(false, false);
        Record record;
        for (const char* path : { "/", "/api/x?a=1", "/login", "/%2e%2E/x" }) {
            const std::string line = "10.1.2.3 - - [22/Nov/2026:14:06:05 +0000] \"GET "
                + std::string(path) + " HTTP/1.1\" 200 5 \"-\" \"agent\"";
            must(format->read(line, record));
            rehearsed.decide(record);
        }
    } catch (const InputError& error) {
        must(*error.what() != '\0');
    }
    return 0;
}
