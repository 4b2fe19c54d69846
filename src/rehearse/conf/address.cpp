#include "rehearse/conf/address.h"

#include "limit/rate_text.h"

#include <arpa/inet.h>

namespace ratelimit::rehearse {

namespace {

constexpr std::size_t ipv6_length = 16;

/// As nginx reads it: inet_pton takes no leading zeros.
bool parse_ipv4(std::string_view text, unsigned char* out) noexcept
{
    std::size_t at = 0;
    for (std::size_t part = 0; part < ipv4_length; ++part) {
        unsigned number = 0;
        std::size_t digits = 0;
        for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, ++digits) {
            number = number * 10 + static_cast<unsigned>(text[at] - '0');
        }
        if (digits == 0 || digits > 3 || number > 255) {
            return false;
        }
        out[part] = static_cast<unsigned char>(number);
        const bool last = part + 1 == ipv4_length;
        if (last ? at != text.size() : (at == text.size() || text[at] != '.')) {
            return false;
        }
        ++at;
    }
    return true;
}

}  // namespace

bool parse_address(std::string_view text, std::string& out)
{
    const bool ipv6 = text.find(':') != std::string_view::npos;
    unsigned char bytes[ipv6_length];
    if (ipv6 ? inet_pton(AF_INET6, std::string(text).c_str(), bytes) != 1
             : !parse_ipv4(text, bytes)) {
        return false;
    }
    out.assign(reinterpret_cast<const char*>(bytes), ipv6 ? ipv6_length : ipv4_length);
    return true;
}

bool parse_client(std::string_view text, std::string& out)
{
    if (!parse_address(text, out)) {
        return false;
    }
    using namespace std::string_view_literals;
    constexpr auto mapped = "\0\0\0\0\0\0\0\0\0\0\xff\xff"sv;
    if (out.starts_with(mapped)) {
        out.erase(0, mapped.size());
    }
    return true;
}

std::string binary_address(std::string_view text)
{
    std::string out;
    return parse_address(text, out) ? out : std::string();
}

std::optional<Network> parse_network(const std::string& text)
{
    const auto slash = text.find('/');
    std::string bytes = binary_address(text.substr(0, slash));
    const auto bits = static_cast<std::int64_t>(bytes.size()) * 8;
    const auto prefix =
        slash == text.npos ? std::optional(bits) : parse_number(text.substr(slash + 1), 0, bits);
    if (bytes.empty() || !prefix) {
        return std::nullopt;
    }
    cut_address(bytes, static_cast<unsigned>(*prefix));
    return Network{ std::move(bytes), static_cast<unsigned>(*prefix) };
}

std::string address_text(std::string_view bytes)
{
    char text[INET6_ADDRSTRLEN] = {};
    if (bytes.size() != ipv4_length && bytes.size() != ipv6_length) {
        return {};
    }
    const int family = bytes.size() == ipv4_length ? AF_INET : AF_INET6;
    return inet_ntop(family, bytes.data(), text, sizeof(text)) == nullptr ? "" : text;
}

void cut_address(std::string& bytes, unsigned prefix)
{
    ratelimit::cut_address(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), prefix);
}

std::string_view network_of(std::string_view address, const NetworkBits& bits, std::string& own)
{
    if (!parse_client(address, own)) {
        return address;  // of a Unix socket
    }
    cut_address(own, own.size() == ipv4_length ? bits.ipv4 : bits.ipv6);
    return own;
}

std::string_view network_text(std::string_view bytes, const NetworkBits& bits, std::string& own)
{
    std::string text = address_text(bytes);
    if (text.empty()) {
        return bytes;
    }
    const unsigned kept = bytes.size() == ipv4_length ? bits.ipv4 : bits.ipv6;
    own = kept < 8 * bytes.size() ? text + "/" + std::to_string(kept) : text;
    return own;
}

}  // namespace ratelimit::rehearse
