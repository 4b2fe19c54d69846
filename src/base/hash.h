#pragma once

#include <cstdint>

namespace ratelimit {

/// Adds a word to a hash. All nodes and versions compute the same. Multiplicative hashing (Knuth,
/// TAOCP, section 6.4); the high half is folded into the low one.
constexpr std::uint64_t mixed(std::uint64_t hash, std::int64_t word) noexcept
{
    constexpr std::uint64_t golden = 0x9E37'79B9'7F4A'7C15;
    hash = (hash ^ static_cast<std::uint64_t>(word)) * golden;
    return hash ^ hash >> 32U;
}

}  // namespace ratelimit
