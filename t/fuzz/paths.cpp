// The API's addresses, and what it writes of any bytes.

#include "fuzz.h"

#include "http/api/json_text.h"
#include "http/api/path.h"

#include <string>

using namespace ratelimit::http;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    auto input = text_of(data, size);
    must(percent_decoded(percent_encoded(input)) == input);

    const auto location = take_text(input);
    const auto path = take_text(input);
    const auto raw = take_text(input);
    const auto found = parse_api_path(location, path, raw, input.size() % 2 == 0, input);
    must(found.view != ApiPath::View::key || (found.zone && !found.key.empty()));

    // A key that is written into an address is the one that is read out of it.
    const std::string address = "/l/zones/z/keys/" + percent_encoded(raw);
    const auto again = parse_api_path("/l/", "/l/zones/z/keys/x", address, false, {});
    must(again.key == (raw == ".." ? "" : std::string(raw)));  // nginx has gone up

    JsonText json;
    json.begin_object().text("t", input).end_object();
    for (const char character : json.str()) {
        must(static_cast<unsigned char>(character) >= ' ');
    }
    return 0;
}
