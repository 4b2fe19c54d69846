#pragma once

#include "conf/conf.h"
#include "http/api/path.h"

#include <string_view>

namespace ratelimit::http {

/// Handles a request of View::override_key, View::override_zone or View::overrides: PUT, DELETE or
/// GET, as the view has. Returns what a content handler returns.
ngx_int_t handle_override(ngx_http_request_t* r, const ApiPath& path);

}  // namespace ratelimit::http
