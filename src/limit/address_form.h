#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// How the keys of a zone are addresses or networks. Such a key is shown to people, and taken from
/// them, as an address: "198.51.100.7", "2001:db8:1:2::/64".
struct AddressForm {
    bool is_text = false;         // the key is what people see; otherwise its 4 or 16 bytes
    bool unmaps = false;          // an IPv4-mapped address is an IPv4 address
    std::uint8_t ipv4_bits = 32;  // that the key keeps of an address; the others are 0
    std::uint8_t ipv6_bits = 128;

    friend bool operator==(const AddressForm&, const AddressForm&) = default;
};

/// The form of a zone's key. Empty: the key is not exactly one variable with the client's address.
/// `client_bits`: those of IPv6 that $ratelimit_client and $ratelimit_client_text keep.
std::optional<AddressForm> address_form(std::string_view key, std::uint8_t client_bits) noexcept;

}  // namespace ratelimit
