#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit {

/// Writes all characters but the unreserved ones of RFC 3986 as %HH.
std::string percent_encoded(std::string_view bytes);

/// The value of two hexadecimal digits at `at`; empty: there are none.
std::optional<char> hex_byte(std::string_view text, std::size_t at) noexcept;

/// Empty: a percent sign is not followed by two hexadecimal digits.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace ratelimit
