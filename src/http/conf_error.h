#pragma once

#include "http/ngx_http.h"

#include "nginx/text.h"

#include <string_view>

namespace ratelimit::http {

/// Logs one line with the directive, its invalid value and the expected one. Returns
/// NGX_CONF_ERROR.
inline char* bad_value(
    ngx_conf_t* cf, std::string_view directive, std::string_view value,
    std::string_view expected) noexcept
{
    const ngx_str_t name = nginx::borrowed(directive);
    const ngx_str_t text = nginx::borrowed(value);
    const ngx_str_t wanted = nginx::borrowed(expected);
    ngx_conf_log_error(
        NGX_LOG_EMERG, cf, 0, "\"%V\": invalid \"%V\", expected %V", &name, &text, &wanted);
    return static_cast<char*>(NGX_CONF_ERROR);
}

/// Whether a zone or a ratelimit_redis block may have this name: letters, digits, _ . and -, not
/// starting with a dot. Names are part of Redis keys, headers, URLs and labels of metrics.
inline bool good_name(std::string_view name) noexcept
{
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz"
                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return !name.empty() && name.front() != '.'
        && name.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace ratelimit::http
