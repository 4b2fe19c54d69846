#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

/// The phase handlers: one decision for each main request.
ngx_int_t access_handler(ngx_http_request_t* r) noexcept;

/// After the access phase, for locations with `satisfy any`, where an access module that allows
/// the request ends the phase before its limits were asked.
ngx_int_t precontent_handler(ngx_http_request_t* r) noexcept;

ngx_int_t preaccess_handler(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
