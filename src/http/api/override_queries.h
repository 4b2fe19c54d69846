#pragma once

#include "conf/conf.h"
#include "fleet/change_call.h"

#include <string>
#include <string_view>

namespace ratelimit::http {

// Requests of the API that wait for the fleet's Redis. They need ratelimit_fleet. All return what a
// content handler returns.

/// Sets or removes the override of a key or, if `key` is empty, of the whole zone, and sends the
/// response. `text`, `time`: as for ChangeCall.
ngx_int_t change_override(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key,
    fleet::ChangeCall::Change which, std::string text, fleet::OverrideTime time);

/// Sends the override of a key or, if `key` is empty, of the whole zone: {"override":null} if there
/// is none.
ngx_int_t show_override(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key);

/// Sends a page of the zone's overrides or, if `zone` is null, of those of all zones, the newest
/// first. The request may have after=, limit= and search=.
ngx_int_t list_overrides(ngx_http_request_t* r, const ZoneConf* zone);

/// Tells all nodes that the key was freed, and sends the response to the request that freed it.
/// Without ratelimit_fleet, it sends only the response. `counted`: whether anything was counted
/// under the key.
ngx_int_t announce_freed(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, bool counted);

}  // namespace ratelimit::http
