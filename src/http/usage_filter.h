#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Adds the filters of ratelimit_usage to nginx's chain: they see a response before it is
/// compressed and change nothing.
void install_usage_filter() noexcept;

/// The variable of ratelimit_usage. It has no value before the end of the response.
ngx_int_t get_usage(ngx_http_request_t* r, ngx_http_variable_value_t* value, uintptr_t) noexcept;

}  // namespace ratelimit::http
