#pragma once

#include "http/conf.h"

#include <string>

namespace ratelimit::http {

/// Answers with a key's state, for which nothing is taken; `arguments` may say rate= and burst=,
/// where they are not the zone's own. Returns what a content handler returns: the answer may come
/// later, from Redis.
ngx_int_t show_key(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view arguments);

/// Deletes a key in Redis and what this node knows of it. Where each length of window has a record,
/// `arguments` has to say by rate= which one is deleted in Redis.
ngx_int_t free_key(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view arguments);

}  // namespace ratelimit::http
