#pragma once

#include <cstdint>
#include <string_view>

namespace ratelimit {

// Hashes that all nodes, machines and versions compute alike, unlike std::hash.

/// FNV-1a (Fowler, Noll and Vo), 64 bits.
constexpr std::uint64_t fnv1a(std::string_view text) noexcept
{
    std::uint64_t hash = 0xCBF2'9CE4'8422'2325;
    for (const char byte : text) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x0000'0100'0000'01B3;
    }
    return hash;
}

/// Adds a word to a hash. Multiplicative hashing (Knuth, TAOCP, section 6.4); the high half is
/// folded into the low one.
constexpr std::uint64_t mixed(std::uint64_t hash, std::int64_t word) noexcept
{
    constexpr std::uint64_t golden = 0x9E37'79B9'7F4A'7C15;
    hash = (hash ^ static_cast<std::uint64_t>(word)) * golden;
    return hash ^ hash >> 32U;
}

}  // namespace ratelimit
