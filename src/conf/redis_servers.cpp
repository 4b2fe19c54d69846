#include "conf/redis_servers.h"

#include "conf/conf_error.h"
#include "limit/rate_text.h"
#include "nginx/text.h"

#include <algorithm>

namespace ratelimit {

namespace {

using nginx::view;
using redis::Topology;

constexpr in_port_t redis_port = 6379;
constexpr in_port_t sentinel_port = 26379;

std::string_view without_brackets(std::string_view host) noexcept
{
    return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

std::string text_of(const ngx_addr_t& address)
{
    u_char text[NGX_SOCKADDR_STRLEN];
    const std::size_t length =
        ngx_sock_ntop(address.sockaddr, address.socklen, text, sizeof(text), 0);
    return std::string(without_brackets({ reinterpret_cast<const char*>(text), length }));
}

/// Whether the text has a login or parameters, as in `rediss://user:password@host/0?timeout=1`.
/// Nothing of it is logged.
bool is_secret_url(std::string_view text) noexcept
{
    return text.find_first_of("@?") != text.npos;
}

/// Parses an address as nginx does, which includes the look-up of its name. False: invalid, which
/// is logged.
bool read_address(ngx_conf_t* cf, const ngx_str_t& value, redis::Endpoint& endpoint)
{
    if (is_secret_url(view(value))) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "\"server\": invalid URL, expected host:port, [ipv6]:port or unix:/path, and the login "
            "in "
            "\"username\" and \"password\" or \"password_file\"");
        return false;
    }
    ngx_url_t url{};
    url.url = value;
    url.default_port = redis_port;
    if (ngx_parse_url(cf->pool, &url) != NGX_OK || url.naddrs == 0) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "\"server\": invalid \"%V\", expected host:port, [ipv6]:port or unix:/path%s%s", &value,
            url.err == nullptr ? "" : ": ", url.err == nullptr ? "" : url.err);
        return false;
    }
    endpoint.name = view(value);
    if (url.family == AF_UNIX) {
        endpoint.unix_path = endpoint.name.substr(std::string_view{ "unix:" }.size());
        return true;
    }
    endpoint.host_name = without_brackets(view(url.host));
    for (ngx_uint_t i = 0; i < url.naddrs; ++i) {
        endpoint.addresses.push_back(text_of(url.addrs[i]));
    }
    endpoint.host = endpoint.addresses.front();
    endpoint.port = ngx_inet_get_port(url.addrs[0].sockaddr);
    return true;
}

bool has_port(const redis::Endpoint& endpoint)
{
    return without_brackets(endpoint.name).size() != endpoint.host_name.size();
}

/// Returns an error if the block has a duplicate server; null: there is none.
const char* check_once(const std::vector<redis::Member>& servers)
{
    for (auto server = servers.begin(); server != servers.end(); ++server) {
        const auto same = [&](const redis::Member& other) {
            return other.endpoint.host_name == server->endpoint.host_name
                && other.endpoint.port == server->endpoint.port
                && other.endpoint.unix_path == server->endpoint.unix_path;
        };
        if (std::find_if(server + 1, servers.end(), same) != servers.end()) {
            return "has a duplicate \"server\"";
        }
    }
    return nullptr;
}

}  // namespace

char* set_server(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values)
{
    constexpr std::string_view weight = "weight=";
    constexpr std::int64_t most_weight = 1000;
    redis::Member member;

    if (values.size() > 1) {
        const auto text = view(values[1]);
        const auto number = text.starts_with(weight)
            ? parse_number(text.substr(weight.size()), 1, most_weight)
            : std::nullopt;
        if (!number) {
            return bad_value(cf, text, "weight= with a number from 1 to 1000");
        }
        member.weight = static_cast<int>(*number);
        block.weighted = true;
    }
    if (!read_address(cf, values[0], member.endpoint)) {
        return failed();
    }
    block.options.servers.push_back(std::move(member));
    return NGX_CONF_OK;
}

char* set_topology(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values)
{
    constexpr std::string_view expected = "ring, cluster or sentinel master=name";
    constexpr std::string_view master = "master=";
    const auto name = view(values[0]);
    const auto parameter = values.size() > 1 ? view(values[1]) : std::string_view{};

    if (name == "sentinel") {
        if (!parameter.starts_with(master) || parameter.size() == master.size()) {
            return bad_value(cf, parameter.empty() ? name : parameter, expected);
        }
        block.options.topology = Topology::sentinel;
        block.options.master = parameter.substr(master.size());
        return NGX_CONF_OK;
    }
    const bool known = name == "ring" || name == "cluster";
    if (values.size() > 1 || !known) {
        return bad_value(cf, known ? parameter : name, expected);
    }
    block.options.topology = name == "ring" ? Topology::ring : Topology::cluster;
    return NGX_CONF_OK;
}

const char* check_servers(RedisBlock& block)
{
    redis::ClientOptions& options = block.options;
    const bool sentinel = options.topology == Topology::sentinel;
    const bool cluster = options.topology == Topology::cluster;

    if (options.servers.empty()) {
        return "has no \"server\"";
    }
    if (block.weighted && (cluster || sentinel)) {
        return "has a \"weight\", which only the servers of a ring have";
    }
    if (cluster && options.server.database != 0) {
        return "has a \"database\", which a cluster does not have";
    }
    if (!sentinel && (!options.sentinel_username.empty() || !options.sentinel_password.empty())) {
        return "has a \"sentinel_username\" or \"sentinel_password\", but no \"topology sentinel\"";
    }
    if (!options.sentinel_username.empty() && options.sentinel_password.empty()) {
        return "has a \"sentinel_username\" but no \"sentinel_password\"";
    }
    for (redis::Member& member : options.servers) {
        if (!member.endpoint.unix_path.empty()) {
            if (cluster) {
                return "has a unix socket, which nodes of a cluster do not have";
            }
        } else if (sentinel && !has_port(member.endpoint)) {
            member.endpoint.port = sentinel_port;
        }
    }
    return check_once(options.servers);
}

}  // namespace ratelimit
