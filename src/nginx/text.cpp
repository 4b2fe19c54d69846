#include "nginx/text.h"

namespace ratelimit::nginx {

std::string_view escaped_for_log(std::string_view bytes, char* out, std::size_t limit) noexcept
{
    static constexpr char hex[] = "0123456789abcdef";
    std::size_t length = 0;

    for (const char character : bytes) {
        const auto code = static_cast<unsigned char>(character);
        const bool plain = code >= 0x20 && code < 0x7f && code != '"' && code != '\\';
        if (length + (plain ? 1 : 4) > limit) {
            break;
        }
        if (plain) {
            out[length++] = character;
            continue;
        }
        out[length++] = '\\';
        out[length++] = 'x';
        out[length++] = hex[code >> 4];
        out[length++] = hex[code & 0xf];
    }
    return { out, length };
}

}  // namespace ratelimit::nginx
