#include "conf/redis_login.h"

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

}  // namespace

bool is_login(ngx_conf_t* cf, std::string_view value) noexcept
{
    if (!value.empty() && !is_placeholder(value)) {
        return true;
    }
    ngx_conf_log_error(
        NGX_LOG_EMERG, cf, 0, "\"%V\" of \"ratelimit_redis\" %s", cf->args->elts,
        value.empty() ? "is empty, expected a text"
                      : "has a variable, which is not replaced here, expected the text itself");
    return false;
}

}  // namespace ratelimit
