#pragma once

#include "conf/conf.h"

#include <string>

namespace ratelimit::http {

/// Sends a key's state, without taking anything. `arguments` may have rate=, burst= and start= in
/// place of the zone's. Returns what a content handler returns; NGX_DONE: the response follows
/// Redis's reply.
ngx_int_t show_key(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view arguments);

/// Deletes a key in Redis and in this node's memory. With a variable rate, a key may have a record
/// for each length of window (Policy::record): rate= in `arguments` selects the one that is
/// deleted in Redis. The records of the override in force are deleted too, and those that an
/// earlier override with this rate= and burst= left.
ngx_int_t free_key(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view arguments);

}  // namespace ratelimit::http
