#pragma once

#include <cstddef>
#include <string_view>

namespace ratelimit {

/// Hexadecimal digits of a key's hash.
inline constexpr std::size_t key_hash_length = 32;

/// Whether a text can be the hash of a key. A key that can be one is hashed itself: otherwise
/// anyone who sees the hash of a key in a log could use up that key's limit.
inline bool is_key_hash(std::string_view text) noexcept
{
    return text.size() == key_hash_length
        && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// In bytes. A longer key is replaced by its hash.
inline constexpr std::size_t max_key_length = 128;

/// Whether the hash of a key is counted in its place. `hash_key`: of the zone.
inline bool is_counted_as_hash(std::string_view key, bool hash_key) noexcept
{
    return hash_key || key.size() > max_key_length || is_key_hash(key);
}

}  // namespace ratelimit
