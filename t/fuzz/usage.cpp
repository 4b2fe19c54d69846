// A response that ratelimit_usage reads. The value does not depend on how the response is cut.

#include "fuzz.h"

#include "limit/usage_scanner.h"

using namespace ratelimit;

/// The first byte is the size of the pieces, and its highest bit the format; the first line is the
/// path.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    if (size == 0) {
        return 0;
    }
    std::string_view text = text_of(data + 1, size - 1);
    const auto line = text.find('\n');
    const std::string_view path = text.substr(0, line);
    if (line == text.npos || !UsageScanner::is_path(path)) {
        return 0;
    }
    text.remove_prefix(line + 1);
    const auto format =
        data[0] >= 128 ? UsageScanner::Format::event_stream : UsageScanner::Format::json;
    const std::size_t piece = data[0] % 128 + 1;

    UsageScanner whole(path, format);
    whole.read(text);
    UsageScanner pieces(path, format);
    for (std::size_t at = 0; at < text.size(); at += piece) {
        pieces.read(text.substr(at, piece));
    }
    must(whole.value() == pieces.value());
    must(!whole.value() || (*whole.value() >= 0 && *whole.value() <= UsageScanner::most));
    return 0;
}
