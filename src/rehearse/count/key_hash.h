#pragma once

#include <string>
#include <string_view>

namespace ratelimit::rehearse {

/// The first 32 hexadecimal digits of the key's SHA-256: the module counts by it, and shows it, if
/// it is_counted_as_hash.
std::string key_hash(std::string_view key);

/// A key as it is printed: bytes that are not printable ASCII, and backslashes, as \xHH.
std::string printable(std::string_view text);

}  // namespace ratelimit::rehearse
