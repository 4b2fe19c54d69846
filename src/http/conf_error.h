#pragma once

#include "http/ngx_http.h"

#include "nginx/text.h"

#include <string_view>

namespace ratelimit::http {

/// Every bad value stops nginx with one line: the directive, the value and what was expected.
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

}  // namespace ratelimit::http
