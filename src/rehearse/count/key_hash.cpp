#include "rehearse/count/key_hash.h"

#include <cstdio>
#include <openssl/sha.h>

namespace ratelimit::rehearse {

std::string key_hash(std::string_view key)
{
    constexpr std::size_t bytes = 16;
    unsigned char hash[SHA256_DIGEST_LENGTH];
    SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash);
    std::string out;
    for (std::size_t i = 0; i < bytes; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof(digits), "%02x", hash[i]);
        out += digits;
    }
    return out;
}

std::string printable(std::string_view text)
{
    std::string out;
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if (byte >= 0x20 && byte < 0x7f && letter != '\\') {
            out += letter;
            continue;
        }
        char digits[5];
        std::snprintf(digits, sizeof(digits), "\\x%02X", byte);
        out += digits;
    }
    return out;
}

}  // namespace ratelimit::rehearse
