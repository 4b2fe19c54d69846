#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit {

struct Handlers;

/// The callbacks of the module's HTTP context. nginx calls `create` before it reads http {} or a
/// location, and `init` or `merge` afterwards. On errors they log one line and return null or
/// NGX_CONF_ERROR.
void* create_main_conf(ngx_conf_t* cf, const Handlers& handlers) noexcept;
/// Finds the ratelimit_redis block of each zone.
char* init_main_conf(ngx_conf_t* cf, void* conf) noexcept;
void* create_location_conf(ngx_conf_t* cf) noexcept;
/// Inherits what the location does not set, and resolves its limits.
char* merge_location_conf(ngx_conf_t* cf, void* parent, void* child) noexcept;
/// Call after all merges: warns of each `nodes=` that changes nothing.
void warn_of_nodes(ngx_conf_t* cf) noexcept;

}  // namespace ratelimit
