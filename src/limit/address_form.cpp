#include "limit/address_form.h"

#include "limit/network_bits.h"

namespace ratelimit {

std::optional<AddressForm> address_form(std::string_view key, std::uint8_t client_bits) noexcept
{
    if (!key.starts_with('$')) {
        return std::nullopt;
    }
    key.remove_prefix(1);
    if (key.starts_with('{') && key.ends_with('}')) {
        key = key.substr(1, key.size() - 2);
    }
    if (key == "remote_addr") {
        return AddressForm{ .is_text = true };
    }
    if (key == "binary_remote_addr") {
        return AddressForm{};
    }
    if (key == "ratelimit_client" || key == "ratelimit_client_text") {
        const bool is_text = key.ends_with("_text");
        return AddressForm{ .is_text = is_text, .unmaps = true, .ipv6_bits = client_bits };
    }
    const auto network = parse_network_variable(key);
    return network
        ? std::optional(AddressForm{ false, true, static_cast<std::uint8_t>(network->ipv4),
                                     static_cast<std::uint8_t>(network->ipv6) })
        : std::nullopt;
}

}  // namespace ratelimit
