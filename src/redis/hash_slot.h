#pragma once

#include <cstdint>
#include <string_view>

namespace ratelimit::redis {

inline constexpr std::size_t slot_count = 16384;

/// The part of a key that decides its slot: the text between its first { and the next }, if that is
/// not empty, else the whole key.
std::string_view hash_tag(std::string_view key) noexcept;

/// The key's hash slot: CRC16 (XMODEM) of its tag, modulo 16384. (Redis Cluster specification.)
std::uint16_t hash_slot(std::string_view key) noexcept;

}  // namespace ratelimit::redis
