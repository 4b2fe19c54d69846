#include "limit/network_bits.h"

#include <algorithm>
#include <charconv>

namespace ratelimit {

namespace {

/// A number without a sign or a leading zero, 1 to `most`, at the begin of the text, which is cut
/// behind it. 0: there is none.
unsigned take_bits(std::string_view& text, unsigned most) noexcept
{
    unsigned bits = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
    if (error != std::errc() || text.front() == '0' || bits > most) {
        return 0;
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return bits;
}

}  // namespace

std::optional<NetworkBits> parse_network_variable(std::string_view name) noexcept
{
    constexpr NetworkBits most;
    if (!name.starts_with(network_variable_prefix)) {
        return std::nullopt;
    }
    name.remove_prefix(network_variable_prefix.size());
    const unsigned ipv4 = take_bits(name, most.ipv4);
    if (ipv4 == 0 || !name.starts_with('_')) {
        return std::nullopt;
    }
    name.remove_prefix(1);
    const unsigned ipv6 = take_bits(name, most.ipv6);
    if (ipv6 == 0 || !name.empty()) {
        return std::nullopt;
    }
    return NetworkBits{ ipv4, ipv6 };
}

void cut_address(unsigned char* bytes, std::size_t size, unsigned bits) noexcept
{
    for (std::size_t i = 0; i < size; ++i) {
        const std::size_t kept = bits > i * 8 ? std::min<std::size_t>(8, bits - i * 8) : 0;
        bytes[i] &= static_cast<unsigned char>(0xff00U >> kept);
    }
}

}  // namespace ratelimit
