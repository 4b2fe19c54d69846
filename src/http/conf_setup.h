#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

/// What nginx calls when it begins to read http {} or a location, and when it has read it: the
/// module's context of http. On errors they log one line and return null or NGX_CONF_ERROR.
void* create_main_conf(ngx_conf_t* cf) noexcept;
/// Finds the Redis of each zone.
char* init_main_conf(ngx_conf_t* cf, void* conf) noexcept;
void* create_location_conf(ngx_conf_t* cf) noexcept;
/// Inherits what the location does not set, and finds the zones of its limits.
char* merge_location_conf(ngx_conf_t* cf, void* parent, void* child) noexcept;

}  // namespace ratelimit::http
