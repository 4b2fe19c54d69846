#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Where a server is: host and port, or the path of a unix socket.
struct Endpoint {
    std::string host;  // a numeric IPv4 or IPv6 address, without brackets; empty: to be looked up
    std::uint16_t port = 6379;
    std::string unix_path;  // not empty: a unix socket
    std::string name;       // as configured or announced, for logs
    std::string host_name;  // the host as configured or announced: for TLS and to be looked up
    std::vector<std::string>
        addresses;  // all that host_name stands for, `host` among them, if known
};

/// Of what Redis announces: an address or a name, and a port. The name may be of more use in logs
/// and certificates than `address`, which then tells where it is.
Endpoint announced_endpoint(
    std::string_view host, std::uint16_t port, std::string_view address = {});

/// "host:port" of a redirection: IPv6 without brackets, and no host where the server does not know
/// what its clients call it: then it is at `otherwise`. Empty: not an address.
std::optional<Endpoint> parse_endpoint(std::string_view text, const Endpoint& otherwise);

bool is_numeric_address(std::string_view host);

}  // namespace ratelimit::redis
