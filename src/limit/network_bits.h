#pragma once

#include <optional>
#include <string_view>

namespace ratelimit {

/// How many of the first bits of a client's address are its network: 1 to 32, and 1 to 128.
struct NetworkBits {
    unsigned ipv4 = 32;
    unsigned ipv6 = 128;

    friend bool operator==(const NetworkBits&, const NetworkBits&) = default;
};

inline constexpr std::string_view network_variable_prefix = "ratelimit_net_";

/// The bits of a variable's name without its dollar, such as ratelimit_net_24_48. Empty: it is no
/// such name.
std::optional<NetworkBits> parse_network_variable(std::string_view name) noexcept;

/// Clears what is behind the first `bits` bits of `size` bytes.
void cut_address(unsigned char* bytes, std::size_t size, unsigned bits) noexcept;

}  // namespace ratelimit
