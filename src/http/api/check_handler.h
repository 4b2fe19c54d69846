#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// The content handler of locations with ratelimit_check. Answers 200 for requests that pass. Other
/// requests were refused in an earlier phase; with `peek` it answers both.
ngx_int_t check_handler(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
