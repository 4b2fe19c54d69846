#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// Where a server is: host and port, or the path of a unix socket.
struct Endpoint {
    std::string host;  // numeric IPv4 or IPv6 address, without brackets; empty: not looked up yet
    std::uint16_t port = 6379;
    std::string unix_path;  // not empty: a unix socket
    std::string name;       // as configured or announced, for logs
    std::string host_name;  // the host as configured or announced; for TLS and look-ups
    std::string tried;      // the address of the last connection that was made or failed; for logs
    std::vector<std::string> addresses;  // all known ones of host_name, including `host`
};

/// Whether a text from outside can be an address or the name of a host: letters, digits, and -._:
/// for names and addresses, at most 255 bytes, and no dot in front, which OpenSSL takes for all
/// names below it.
bool can_be_host(std::string_view text) noexcept;

/// The endpoint that Redis announces by an address or name (`host`) and a port. If `host` is a
/// name, `address` is the address to connect to, if known.
Endpoint announced_endpoint(
    std::string_view host, std::uint16_t port, std::string_view address = {});

/// Parses "host:port" of a redirection, where IPv6 has no brackets. If the server does not know its
/// own host, that is missing, and is taken from `otherwise`. Empty: malformed.
std::optional<Endpoint> parse_endpoint(std::string_view text, const Endpoint& otherwise);

bool is_numeric_address(std::string_view host);

}  // namespace ratelimit::redis
