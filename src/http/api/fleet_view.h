#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Sends the fleet: its nodes, zones summed over them, and the keys that they refuse most. Read
/// from Redis; if that does not answer, this node alone. Returns what a content
/// handler returns; NGX_DONE: the response follows Redis's reply.
ngx_int_t show_fleet(ngx_http_request_t* r);

}  // namespace ratelimit::http
