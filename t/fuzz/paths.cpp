// The API's addresses, and its JSON for any bytes.

#include "fuzz.h"

#include "http/api/path.h"
#include "limit/json_text.h"
#include "limit/percent_text.h"

#include <string>

using namespace ratelimit::http;

namespace {

/// RFC 3629: no overlong encodings, no surrogates.
bool is_utf8(std::string_view text)
{
    constexpr unsigned least[] = { 0, 0x80, 0x800, 0x10000 };
    while (!text.empty()) {
        const unsigned lead = static_cast<unsigned char>(text.front());
        const std::size_t more = lead < 0x80 ? 0 : lead >> 5U == 6 ? 1 : lead >> 4U == 14 ? 2 : 3;
        if ((more == 3 && lead >> 3U != 30) || text.size() <= more) {
            return false;
        }
        unsigned code = more == 0 ? lead : lead & (0x3FU >> more);
        for (std::size_t i = 1; i <= more; ++i) {
            const unsigned byte = static_cast<unsigned char>(text[i]);
            if (byte >> 6U != 2) {
                return false;
            }
            code = code << 6U | (byte & 0x3FU);
        }
        if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
            return false;
        }
        text.remove_prefix(more + 1);
    }
    return true;
}

/// Reads a string of RFC 8259 up to its closing quotation mark, with "?" for U+FFFD, which is
/// written in place of invalid bytes.
std::string string_of(std::string_view json)
{
    must(is_utf8(json) && json.starts_with('"'));
    std::string text;
    for (json.remove_prefix(1); !json.starts_with('"'); json.remove_prefix(1)) {
        must(!json.empty() && static_cast<unsigned char>(json.front()) >= ' ');
        if (json.front() != '\\') {
            text += json.front();
            continue;
        }
        json.remove_prefix(1);
        must(!json.empty());
        if (json.front() == '"' || json.front() == '\\') {
            text += json.front();
            continue;
        }
        must(json.front() == 'u' && json.size() > 4);
        const auto digits = std::string(json.substr(1, 4));
        must(digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos);
        const auto code = std::stoul(digits, nullptr, 16);
        must(code == 0xFFFD || code < 0x80);
        text += code == 0xFFFD ? '?' : static_cast<char>(code);
        json.remove_prefix(4);
    }
    must(json == "\"");
    return text;
}

/// Whether nginx resolves something of a path that has this key.
bool has_dots(std::string_view key)
{
    const std::string all = "/" + std::string(key) + "/";
    return all.find("/./") != std::string::npos || all.find("/../") != std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    auto input = text_of(data, size);
    must(ratelimit::percent_decoded(ratelimit::percent_encoded(input)) == input);

    const auto location = take_text(input);
    const auto path = take_text(input);
    const auto raw = take_text(input);
    const auto found = parse_api_path(location, path, raw, input.size() % 2 == 0, input);
    must(found.view != ApiPath::View::key || (found.zone && !found.key.empty()));
    must(
        found.view == ApiPath::View::no_key || found.view == ApiPath::View::nothing
        || !has_dots(raw.substr(0, raw.find('?'))));

    // A key that is written into an address is read back unchanged.
    const std::string address = "/l/zones/z/keys/" + ratelimit::percent_encoded(raw);
    const auto again = parse_api_path("/l/", "/l/zones/z/keys/x", address, false, {});
    must(again.key == (has_dots(raw) ? "" : std::string(raw)));

    ratelimit::JsonText json;
    json.begin_object().text("t", input);
    const std::string text = json.finish();
    const std::string_view written = text;
    must(written.starts_with("{\"t\":") && written.ends_with("}\n"));
    const auto read = string_of(written.substr(5, written.size() - 7));
    must(read.size() == input.size() && (!is_utf8(input) || read == input));
    return 0;
}
