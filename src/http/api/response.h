#pragma once

#include "http/ngx_http.h"

#include <span>
#include <string_view>

namespace ratelimit::http {

inline constexpr std::string_view json_type = "application/json";

struct ApiHeader {
    std::string_view name;  // what outlives the request
    std::string_view value;
};

/// Sends a whole response, which nobody may store, to GET or HEAD. An empty `type` has no body.
/// Returns what a content handler returns.
ngx_int_t send_response(
    ngx_http_request_t* r, ngx_uint_t status, std::string_view type, std::string_view body,
    std::span<const ApiHeader> headers = {});

/// {"error":"..."}
ngx_int_t send_error(
    ngx_http_request_t* r, ngx_uint_t status, std::string_view what,
    std::span<const ApiHeader> headers = {});

}  // namespace ratelimit::http
