#pragma once

#include "http/request_state.h"

namespace ratelimit::http {

/// Called for a request that passes after it waited for its check. Over HTTP/2 nginx knows by then
/// that the client has left, and answers 499 or 500 when it begins to read the body, even if it has
/// all of it and proxy_ignore_client_abort is on. Here a complete body is read first: until then
/// the connection's error is hidden. Without a complete body the request ends. Returns
/// NGX_DECLINED, or the status.
ngx_int_t pass_without_client(ngx_http_request_t* r, RequestState& state) noexcept;

/// From here on nginx sees that the client has left.
void show_client_gone(RequestState& state) noexcept;

/// Puts the filter that notices a complete body into nginx's chain.
void install_body_filter() noexcept;

}  // namespace ratelimit::http
