#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Phase handlers. Each main request is decided once, in the phase that ratelimit_phase sets.
ngx_int_t access_handler(ngx_http_request_t* r) noexcept;

/// Takes the place of access_handler in locations with `satisfy any`, where an access module that
/// allows the request skips the other access handlers.
ngx_int_t precontent_handler(ngx_http_request_t* r) noexcept;

ngx_int_t preaccess_handler(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
