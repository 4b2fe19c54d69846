#include "redis/endpoint.h"

#include <charconv>

#include <arpa/inet.h>

namespace ratelimit::redis {

bool can_be_host(std::string_view text) noexcept
{
    constexpr std::size_t longest = 255;
    constexpr std::string_view allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:";
    return !text.empty() && text.size() <= longest && text.front() != '.'
        && text.find_first_not_of(allowed) == std::string_view::npos;
}

bool is_numeric_address(std::string_view host)
{
    const std::string text(can_be_host(host) ? host : std::string_view{});  // no zero byte
    in6_addr bytes{};
    return inet_pton(AF_INET, text.c_str(), &bytes) == 1
        || inet_pton(AF_INET6, text.c_str(), &bytes) == 1;
}

Endpoint announced_endpoint(std::string_view host, std::uint16_t port, std::string_view address)
{
    Endpoint endpoint;
    endpoint.host_name = host;
    endpoint.port = port;
    if (is_numeric_address(host)) {
        endpoint.host = host;
    } else if (is_numeric_address(address)) {
        endpoint.host = address;
    }
    const bool ipv6 = host.find(':') != std::string_view::npos;
    endpoint.name =
        (ipv6 ? "[" + endpoint.host_name + "]" : endpoint.host_name) + ":" + std::to_string(port);
    return endpoint;
}

std::optional<Endpoint> parse_endpoint(std::string_view text, const Endpoint& otherwise)
{
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) {
        return std::nullopt;
    }
    const auto host = text.substr(0, colon);
    const char* end = text.data() + text.size();
    std::uint16_t port = 0;
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    if (parsed.ec != std::errc{} || parsed.ptr != end || port == 0) {
        return std::nullopt;
    }
    if (host.empty() || host == "?") {
        return announced_endpoint(otherwise.host_name, port, otherwise.host);
    }
    if (!can_be_host(host)) {
        return std::nullopt;
    }
    return announced_endpoint(host, port);
}

}  // namespace ratelimit::redis
