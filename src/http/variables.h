#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Adds the $ratelimit_* variables.
ngx_int_t add_variables(ngx_conf_t* cf) noexcept;

/// After the configuration was read: whether each $ratelimit_net_A_B in it has bits that it can
/// have. Logs the first that has not.
ngx_int_t check_variables(ngx_conf_t* cf) noexcept;

}  // namespace ratelimit::http
