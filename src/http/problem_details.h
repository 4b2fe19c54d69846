#pragma once

#include "http/request_state.h"

namespace ratelimit::http {

/// Refuses a request with this status. Returns what its phase handler is to return: the status, for
/// nginx to answer; or, if ratelimit_problem_details is on and no error_page applies, NGX_DONE, and
/// the answer is sent.
ngx_int_t refuse(ngx_http_request_t* r, const RequestState& state, ngx_int_t status) noexcept;

}  // namespace ratelimit::http
