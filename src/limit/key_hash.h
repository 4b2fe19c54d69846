#pragma once

#include <cstddef>
#include <string_view>

namespace ratelimit {

/// Hexadecimal digits of a key's hash.
inline constexpr std::size_t key_hash_length = 32;

/// Whether a text can be the hash of a key. A key that can be one is hashed itself: otherwise who
/// sees the hash of a key, in a log, could use up what that key may do.
inline bool is_key_hash(std::string_view text) noexcept
{
    return text.size() == key_hash_length
        && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace ratelimit
