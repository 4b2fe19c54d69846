#include "conf/redis_directive.h"

#include "conf/conf.h"
#include "conf/conf_error.h"
#include "conf/redis_login.h"
#include "conf/redis_servers.h"
#include "limit/rate_text.h"
#include "nginx/guarded.h"
#include "nginx/text.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <optional>
#include <set>
#include <span>

namespace ratelimit {

namespace {

using nginx::borrowed;
using nginx::view;
using redis::ClientOptions;
using redis::ServerOptions;
using redis::TlsOptions;

using Values = std::span<const ngx_str_t>;

/// A directive inside the block. `set` returns what nginx's setters return.
struct BlockDirective {
    std::string_view name;
    char* (*set)(ngx_conf_t* cf, RedisBlock& block, Values values);
    std::size_t most_values = 1;
};

constexpr std::chrono::seconds longest_usual_wait{ 10 };

// The member of a block that a setter sets.
template <class T>
T& in(RedisBlock& block, T RedisBlock::*member) noexcept
{
    return block.*member;
}
template <class T>
T& in(RedisBlock& block, T ClientOptions::*member) noexcept
{
    return block.options.*member;
}
template <class T>
T& in(RedisBlock& block, T ServerOptions::*member) noexcept
{
    return block.options.server.*member;
}
template <class T>
T& in(RedisBlock& block, T TlsOptions::*member) noexcept
{
    return block.tls.*member;
}

template <auto member, int least, int most>
char* set_integer(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    const auto number = parse_number(view(values.front()), least, most);
    if (!number) {
        return bad_value(
            cf, view(values.front()),
            "a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    in(block, member) = static_cast<int>(*number);
    return NGX_CONF_OK;
}

template <auto member>
char* set_login(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    if (!is_login(cf, view(values.front()))) {
        return failed();
    }
    in(block, member) = std::string(view(values.front()));
    return NGX_CONF_OK;
}

template <auto member>
char* set_password_file(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    ngx_str_t path = values.front();
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return failed();
    }
    std::string reason;
    in(block, member) = redis::Password::in_file(std::string{ view(path) }, reason);
    if (!reason.empty()) {
        return bad_value(
            cf, view(path), "a readable file with the password in its first line: " + reason);
    }
    return NGX_CONF_OK;
}

/// A time such as 100ms: 1ms to 1d, which is far above any use, and whose sums do not overflow.
std::optional<milliseconds> parse_wait(std::string_view text)
{
    ngx_str_t copy = borrowed(text);
    const milliseconds time{ ngx_parse_time(&copy, 0) };  // NGX_ERROR is below zero
    return time > time.zero() && time <= std::chrono::days{ 1 } ? std::optional{ time }
                                                                : std::nullopt;
}

template <auto member>
char* set_time(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    const ngx_str_t& value = values.front();
    const auto time = parse_wait(view(value));
    if (!time) {
        return bad_value(cf, view(value), "a time from 1ms to 1d, such as 100ms or 1s");
    }
    in(block, member) = *time;
    if (*time > longest_usual_wait) {
        ngx_conf_log_error(
            NGX_LOG_WARN, cf, 0, "\"%V %V\" is %L s, for which each request may wait for Redis",
            cf->args->elts, &value, std::chrono::ceil<std::chrono::seconds>(*time).count());
    }
    return NGX_CONF_OK;
}

/// breaker failures=n open=t
char* set_breaker(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    constexpr std::string_view expected =
        "failures= with a number from 1 to 1000000, open= with a time "
        "from 1ms to 1d, or both";
    for (const ngx_str_t& value : values) {
        const auto text = view(value);
        if (text.starts_with("failures=")) {
            const auto number = parse_number(text.substr(9), 1, 1'000'000);
            if (!number) {
                return bad_value(cf, text, expected);
            }
            block.options.server.breaker_failures = static_cast<int>(*number);
            continue;
        }
        const auto open = text.starts_with("open=") ? parse_wait(text.substr(5)) : std::nullopt;
        if (!open) {
            return bad_value(cf, text, expected);
        }
        block.options.server.breaker_open = *open;
    }
    return NGX_CONF_OK;
}

template <auto member>
char* set_switch(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    const auto value = view(values.front());
    if (value != "on" && value != "off") {
        return bad_value(cf, value, "on or off");
    }
    in(block, member) = value == "on";
    return NGX_CONF_OK;
}

template <std::string TlsOptions::*file>
char* set_tls_file(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    ngx_str_t path = values.front();
    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return failed();
    }
    block.tls.*file = view(path);
    if (!std::ifstream(block.tls.*file)) {
        const auto* words = static_cast<const ngx_str_t*>(cf->args->elts);
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, ngx_errno, "\"%V\": could not open \"%V\"", words, &path);
        return failed();
    }
    return NGX_CONF_OK;
}

char* set_tls_server_name(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    const auto name = view(values.front());
    if (!redis::can_be_host(name)) {
        return bad_value(cf, name, "the name of one host, or an address");
    }
    block.tls.server_name = name;
    return NGX_CONF_OK;
}

char* set_prefix(ngx_conf_t* cf, RedisBlock& block, Values values)
{
    const auto value = view(values.front());
    if (value.find_first_of("{}") != std::string_view::npos) {
        return bad_value(cf, value, "text without braces");
    }
    block.prefix = value;
    return NGX_CONF_OK;
}

/// nginx's include: it passes each directive of the files to this block's handler.
char* set_include(ngx_conf_t* cf, RedisBlock&, Values)
{
    return ngx_conf_include(cf, nullptr, nullptr);
}

constexpr BlockDirective directives[] = {
    { "include", set_include },
    { "server", set_server, 2 },
    { "topology", set_topology, 2 },
    { "database", set_integer<&ServerOptions::database, 0, 1'000'000> },
    { "username", set_login<&ServerOptions::username> },
    { "password", set_login<&ServerOptions::password> },
    { "password_file", set_password_file<&ServerOptions::password> },
    { "connections", set_integer<&ServerOptions::connections, 1, 128> },
    { "connect_timeout", set_time<&ServerOptions::connect_timeout> },
    { "timeout", set_time<&ServerOptions::timeout> },
    { "prefix", set_prefix },
    { "breaker", set_breaker, 2 },
    { "sentinel_username", set_login<&ClientOptions::sentinel_username> },
    { "sentinel_password", set_login<&ClientOptions::sentinel_password> },
    { "sentinel_password_file", set_password_file<&ClientOptions::sentinel_password> },
    { "tls", set_switch<&RedisBlock::tls_on> },
    { "tls_verify", set_switch<&TlsOptions::verify> },
    { "tls_server_name", set_tls_server_name },
    { "tls_trusted_certificate", set_tls_file<&TlsOptions::trusted_certificate> },
    { "tls_certificate", set_tls_file<&TlsOptions::certificate> },
    { "tls_certificate_key", set_tls_file<&TlsOptions::certificate_key> },
};

/// A block while it is read, and the names of its directives that were seen.
struct BlockReader {
    RedisBlock& block;
    std::set<std::string_view> seen = {};
};

char* read_directive(ngx_conf_t* cf, BlockReader& reader)
{
    const auto* values = static_cast<const ngx_str_t*>(cf->args->elts);
    const auto* const found = std::find_if(
        std::begin(directives), std::end(directives),
        [name = view(values[0])](const BlockDirective& known) { return known.name == name; });

    if (found == std::end(directives)) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0, "unknown directive \"%V\" in \"ratelimit_redis\"", &values[0]);
        return failed();
    }
    if (cf->args->nelts < 2 || cf->args->nelts > 1 + found->most_values) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0, "invalid number of arguments in \"%V\" of \"ratelimit_redis\"",
            &values[0]);
        return failed();
    }
    // `password` and `password_file` exclude each other; `server` and `include` may be repeated.
    const std::string_view name = found->name;
    const auto same = name.substr(0, name.find("_file"));
    const bool repeatable = found->set == set_server || found->set == set_include;
    if (!repeatable && !reader.seen.insert(same).second) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0, "\"%V\" is duplicate in \"ratelimit_redis\"", &values[0]);
        return failed();
    }
    return found->set(cf, reader.block, { values + 1, cf->args->nelts - 1 });
}

char* read_block_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf, conf] {
        return read_directive(cf, *static_cast<BlockReader*>(conf));
    });
}

char* block_error(ngx_conf_t* cf, const RedisBlock& block, const char* what)
{
    const ngx_str_t name = borrowed(block.name);
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"ratelimit_redis\" \"%V\" %s", &name, what);
    return failed();
}

/// Checks what depends on several directives of a block.
char* check_block(ngx_conf_t* cf, const BlockReader& reader)
{
    RedisBlock& block = reader.block;
    if (const char* wrong = check_servers(block)) {
        return block_error(cf, block, wrong);
    }
    if (block.options.topology != redis::Topology::cluster) {
        block.options.server.clock_key = block.prefix + "time";
    }
    if (!block.options.server.username.empty() && block.options.server.password.empty()) {
        return block_error(cf, block, "has a \"username\" but no \"password\"");
    }
    if (!block.tls_on) {
        const auto of_tls =
            std::find_if(reader.seen.begin(), reader.seen.end(), [](std::string_view name) {
                return name.starts_with("tls_");
            });
        return of_tls == reader.seen.end()
            ? NGX_CONF_OK
            : block_error(
                cf, block, ("has \"" + std::string(*of_tls) + "\" but no \"tls on\"").c_str());
    }
    if (block.tls.certificate.empty() != block.tls.certificate_key.empty()) {
        return block_error(
            cf, block, "has only one of \"tls_certificate\" and \"tls_certificate_key\"");
    }
    const bool nameless = std::any_of(
        block.options.servers.begin(), block.options.servers.end(),
        [](const redis::Member& member) { return !member.endpoint.unix_path.empty(); });
    if (block.tls.server_name.empty() && block.tls.verify && nameless) {
        return block_error(cf, block, "has a unix socket and TLS, but no \"tls_server_name\"");
    }
    try {
        block.options.server.tls = std::make_shared<redis::TlsContext>(block.tls);
    } catch (const std::runtime_error& error) {
        return block_error(cf, block, error.what());
    }
    return NGX_CONF_OK;
}

char* read_block(ngx_conf_t* cf, MainConf& main)
{
    const auto& name = static_cast<const ngx_str_t*>(cf->args->elts)[1];
    if (!good_name(view(name))) {
        return bad_value(
            cf, view(name), "a name of letters, digits, _ . or -, not starting with a dot");
    }
    if (main.redis_named(view(name)) != nullptr) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate \"ratelimit_redis\" \"%V\"", &name);
        return failed();
    }
    RedisBlock& block = main.redis.emplace_back();
    block.name = view(name);

    BlockReader reader{ block };
    const ngx_conf_t saved = *cf;
    cf->handler = read_block_directive;
    cf->handler_conf = &reader;
    char* result = ngx_conf_parse(cf, nullptr);
    *cf = saved;

    return result == NGX_CONF_OK ? check_block(cf, reader) : result;
}

}  // namespace

char* redis_directive(ngx_conf_t* cf, ngx_command_t*, void*) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf] { return read_block(cf, main_conf(cf)); });
}

}  // namespace ratelimit
