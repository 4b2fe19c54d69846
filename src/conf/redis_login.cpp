#include "conf/redis_login.h"

#include "conf/conf_error.h"
#include "nginx/text.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// Whether the text is what a template has in place of a value: `${NAME}`, `$NAME` in capitals, or
/// `{{ name }}`.
bool is_placeholder(std::string_view text) noexcept
{
    const auto capital = [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (text.starts_with("${") || text.starts_with("{{")) {
        return text.ends_with('}');
    }
    return text.size() > 1 && text.starts_with('$')
        && std::all_of(text.begin() + 1, text.end(), capital);
}

template <class Text>
char* set_login(ngx_conf_t* cf, std::string_view directive, Text& out, const ngx_str_t& value)
{
    const auto text = nginx::view(value);
    if (text.empty() || is_placeholder(text)) {
        const ngx_str_t name = nginx::borrowed(directive);
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0, "\"%V\" of \"ratelimit_redis\" %s", &name,
            text.empty() ? "is empty, expected a text"
                         : "has a variable, which is not replaced here, expected the text itself");
        return failed();
    }
    out = std::string(text);
    return NGX_CONF_OK;
}

}  // namespace

char* set_username(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values)
{
    return set_login(cf, "username", block.options.server.username, values.front());
}

char* set_password(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values)
{
    return set_login(cf, "password", block.options.server.password, values.front());
}

char* set_sentinel_username(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values)
{
    return set_login(cf, "sentinel_username", block.options.sentinel_username, values.front());
}

char* set_sentinel_password(ngx_conf_t* cf, RedisBlock& block, std::span<const ngx_str_t> values)
{
    return set_login(cf, "sentinel_password", block.options.sentinel_password, values.front());
}

}  // namespace ratelimit
