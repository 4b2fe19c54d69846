#include "http/shown_key.h"

#include "limit/network_bits.h"
#include "limit/rate_text.h"
#include "nginx/ngx.h"
#include "nginx/text.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ratelimit::http {

namespace {

constexpr std::size_t ipv4_bytes = 4;
constexpr std::size_t ipv6_bytes = 16;
constexpr std::string_view unix_client = "unix:";  // as nginx has it of a client without an address

/// As nginx writes addresses: RFC 5952.
std::size_t write_address(std::string_view bytes, char* out, std::size_t limit) noexcept
{
    sockaddr_in6 ipv6{};
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    ipv6.sin6_family = AF_INET6;
    const bool is_ipv4 = bytes.size() == ipv4_bytes;
    std::memcpy(
        is_ipv4 ? static_cast<void*>(&ipv4.sin_addr) : &ipv6.sin6_addr, bytes.data(), bytes.size());
    auto* address =
        is_ipv4 ? reinterpret_cast<sockaddr*>(&ipv4) : reinterpret_cast<sockaddr*>(&ipv6);
    return ngx_sock_ntop(
        address, is_ipv4 ? sizeof(ipv4) : sizeof(ipv6), reinterpret_cast<u_char*>(out), limit, 0);
}

/// The 4 or 16 bytes of an address; empty: it is none.
std::string read_address(const std::string& text)
{
    std::array<char, ipv6_bytes> bytes{};
    if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) {
        return { bytes.data(), ipv4_bytes };
    }
    return inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1
        ? std::string{ bytes.data(), ipv6_bytes }
        : std::string{};
}

bool is_mapped(std::string_view bytes) noexcept
{
    constexpr std::string_view start{ "\0\0\0\0\0\0\0\0\0\0\xff\xff", ipv6_bytes - ipv4_bytes };
    return bytes.size() == ipv6_bytes && bytes.starts_with(start);
}

}  // namespace

std::string_view shown_key(
    const Zone& zone, std::string_view key, char* out, std::size_t limit) noexcept
{
    const bool is_ipv4 = key.size() == ipv4_bytes;
    if (!zone.addresses || zone.addresses->is_text || (!is_ipv4 && key.size() != ipv6_bytes)) {
        return nginx::escaped_for_log(key, out, limit);
    }
    return write_network(
        key, is_ipv4 ? zone.addresses->ipv4_bits : zone.addresses->ipv6_bits, out, limit);
}

std::string_view write_network(
    std::string_view bytes, std::size_t bits, char* out, std::size_t limit) noexcept
{
    std::size_t length = write_address(bytes, out, limit);
    if (bits < 8 * bytes.size()) {
        auto* end = reinterpret_cast<u_char*>(out);
        length = static_cast<std::size_t>(
            ngx_snprintf(end + length, limit - length, "/%uz", bits) - end);
    }
    return { out, length };
}

bool is_address(std::string_view text)
{
    return text.find('\0') == std::string_view::npos
        && !read_address(std::string(text.substr(0, text.find('/')))).empty();
}

std::string shown_key(const Zone* zone, std::string_view key)
{
    std::string text(std::max<std::size_t>(4 * key.size(), 64), '\0');
    text.resize((zone == nullptr ? nginx::escaped_for_log(key, text.data(), text.size())
                                 : shown_key(*zone, key, text.data(), text.size()))
                    .size());
    return text;
}

std::optional<std::string> typed_key(const Zone& zone, std::string_view typed)
{
    if (!zone.addresses || typed == unix_client) {
        return std::string(typed);
    }
    const AddressForm& form = *zone.addresses;
    const auto slash = typed.find('/');
    std::string bytes = read_address(std::string(typed.substr(0, slash)));
    if (bytes.empty() || (typed.find('\0') != std::string_view::npos)) {
        return std::nullopt;
    }
    if (form.unmaps && is_mapped(bytes)) {
        bytes.erase(0, ipv6_bytes - ipv4_bytes);
    }
    const std::int64_t bits = bytes.size() == ipv4_bytes ? form.ipv4_bits : form.ipv6_bits;
    if (slash != std::string_view::npos
        && parse_number(typed.substr(slash + 1), bits, bits) != bits) {
        return std::nullopt;
    }
    cut_address(
        reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), static_cast<unsigned>(bits));
    if (!form.is_text) {
        return bytes;
    }
    std::array<char, NGX_SOCKADDR_STRLEN + 4> text{};
    return std::string(
        write_network(bytes, static_cast<std::size_t>(bits), text.data(), text.size()));
}

}  // namespace ratelimit::http
