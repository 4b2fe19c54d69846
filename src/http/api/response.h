#pragma once

#include "nginx/ngx_http.h"

#include <span>
#include <string_view>

namespace ratelimit::http {

inline constexpr std::string_view json_type = "application/json";
inline constexpr std::string_view no_answer = "Redis does not answer";  // of a 503

struct ApiHeader {
    std::string_view name;  // must outlive the request, as `value`
    std::string_view value;
};

/// Sends a complete response, with Cache-Control: no-store. An empty `type`: no Content-Type.
/// Returns what a content handler returns.
ngx_int_t send_response(
    ngx_http_request_t* r, ngx_uint_t status, std::string_view type, std::string_view body,
    std::span<const ApiHeader> headers = {});

/// Sends {"error":"..."} with this text.
ngx_int_t send_error(
    ngx_http_request_t* r, ngx_uint_t status, std::string_view what,
    std::span<const ApiHeader> headers = {});

}  // namespace ratelimit::http
