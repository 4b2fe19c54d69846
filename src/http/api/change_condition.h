#pragma once

#include "nginx/ngx_http.h"

#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::http {

/// Sends JSON with the ETag of an override, by its text in Redis; empty: there is none.
ngx_int_t send_tagged(ngx_http_request_t* r, const std::string& json, std::string_view stored);

/// The condition of a change, as fleet::ChangeCall takes it, by If-Match and If-None-Match. Empty:
/// the headers have no form that is known.
std::optional<std::string> change_condition(ngx_http_request_t* r);

}  // namespace ratelimit::http
