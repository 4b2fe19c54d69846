#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Handler of nginx's log phase: settles the limits that have charge=, once for each request, when
/// its response is complete or its client has left.
ngx_int_t settle_charges(ngx_http_request_t* r) noexcept;

/// The process exits: settles the requests whose responses are cut off by that.
void settle_running_requests() noexcept;

}  // namespace ratelimit::http
