#include "redis/hash_slot.h"

#include <array>

namespace ratelimit::redis {

namespace {

/// The CRC of each byte, for the polynomial x^16 + x^12 + x^5 + 1.
constexpr std::array<std::uint16_t, 256> remainders_of_bytes() noexcept
{
    std::array<std::uint16_t, 256> table{};
    for (unsigned byte = 0; byte < table.size(); ++byte) {
        unsigned remainder = byte << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            remainder = (remainder << 1U) ^ ((remainder & 0x8000U) != 0 ? 0x1021U : 0U);
        }
        table[byte] = static_cast<std::uint16_t>(remainder);
    }
    return table;
}

constexpr std::array<std::uint16_t, 256> remainders = remainders_of_bytes();

}  // namespace

std::string_view hash_tag(std::string_view key) noexcept
{
    const auto open = key.find('{');
    if (open == std::string_view::npos) {
        return key;
    }
    const auto close = key.find('}', open + 1);
    if (close == std::string_view::npos || close == open + 1) {
        return key;
    }
    return key.substr(open + 1, close - open - 1);
}

std::uint16_t hash_slot(std::string_view key) noexcept
{
    unsigned crc = 0;
    for (const char character : hash_tag(key)) {
        const auto byte = static_cast<unsigned char>(character);
        crc = ((crc << 8U) & 0xffffU) ^ remainders[(crc >> 8U) ^ byte];
    }
    return static_cast<std::uint16_t>(crc % slot_count);
}

}  // namespace ratelimit::redis
