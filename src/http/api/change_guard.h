#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Whether a browser sent the request for a page of another origin: by Sec-Fetch-Site or, where the
/// browser does not send that, by Origin, which must name the host of the request.
bool is_of_other_origin(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
