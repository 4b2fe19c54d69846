#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Adds the $ratelimit_* variables.
ngx_int_t add_variables(ngx_conf_t* cf) noexcept;

}  // namespace ratelimit::http
