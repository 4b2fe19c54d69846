#pragma once

#include "http/ngx_http.h"

#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::http {

/// The ETag of an override, by its text in Redis: "\"...\"". Empty: OpenSSL has no SHA-1.
std::string entity_tag(std::string_view stored);

/// The condition of a change, as fleet::ChangeCall takes it, by If-Match and If-None-Match. Empty:
/// the headers have no form that is known.
std::optional<std::string> change_condition(ngx_http_request_t* r);

}  // namespace ratelimit::http
