#include "limit/percent_text.h"

#include <charconv>

namespace ratelimit {

namespace {

constexpr std::string_view hex_digits = "0123456789ABCDEF";

bool is_unreserved(char character) noexcept
{
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z')
        || (character >= '0' && character <= '9')
        || std::string_view{ "-._~" }.find(character) != std::string_view::npos;
}

}  // namespace

std::optional<char> hex_byte(std::string_view text, std::size_t at) noexcept
{
    unsigned value = 0;
    if (text.size() < at + 2) {
        return std::nullopt;
    }
    const char* begin = text.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + 2, value, 16);
    if (error != std::errc{} || end != begin + 2) {
        return std::nullopt;
    }
    return static_cast<char>(value);
}

std::string percent_encoded(std::string_view bytes)
{
    std::string text;
    for (const char byte : bytes) {
        if (is_unreserved(byte)) {
            text += byte;
        } else {
            text += '%';
            const auto value = static_cast<unsigned char>(byte);
            text += hex_digits[value >> 4U];
            text += hex_digits[value & 0xFU];
        }
    }
    return text;
}

std::optional<std::string> percent_decoded(std::string_view text)
{
    std::string bytes;
    while (!text.empty()) {
        if (text.front() != '%') {
            bytes += text.front();
            text.remove_prefix(1);
            continue;
        }
        const auto byte = hex_byte(text, 1);
        if (!byte) {
            return std::nullopt;
        }
        bytes += *byte;
        text.remove_prefix(3);
    }
    return bytes;
}

}  // namespace ratelimit
