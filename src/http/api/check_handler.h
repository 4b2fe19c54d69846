#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// The content handler of locations with ratelimit_check, which answers that a request passes. One
/// that does not was refused in an earlier phase, unless the location only peeks.
ngx_int_t check_handler(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
