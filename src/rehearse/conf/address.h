#pragma once

#include "limit/network_bits.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::rehearse {

inline constexpr std::size_t ipv4_length = 4;

/// The four or sixteen bytes of an address, in network order; nothing if the text is none.
std::string binary_address(std::string_view text);

struct Network {
    std::string bytes;    // of its addresses: 4 or 16, and 0 beyond the prefix
    unsigned prefix = 0;  // bits
};
/// "10.0.0.0/8", or one address. Empty: it is neither.
std::optional<Network> parse_network(const std::string& text);

/// The same into `out`. False: the text is no address.
bool parse_address(std::string_view text, std::string& out);
/// The same of a client: an IPv4-mapped address is an IPv4 address.
bool parse_client(std::string_view text, std::string& out);

/// As inet_ntop: of four or sixteen bytes; nothing for other lengths.
std::string address_text(std::string_view bytes);

/// $ratelimit_client and $ratelimit_net_A_B of $remote_addr: the binary address, cut to the bits of
/// its network.
std::string_view network_of(std::string_view address, const NetworkBits& bits, std::string& own);

/// $ratelimit_client_text: what network_of returned, as people write it, with "/bits" if these are
/// not all. `bytes` may be of `own`.
std::string_view network_text(std::string_view bytes, const NetworkBits& bits, std::string& own);

/// Clears the bits behind the first `prefix` ones.
void cut_address(std::string& bytes, unsigned prefix);

}  // namespace ratelimit::rehearse
