#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// The content handler of a location with ratelimit_api.
ngx_int_t api_handler(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
