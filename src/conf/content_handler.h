#pragma once

#include "conf/conf.h"

namespace ratelimit {

/// The core module's configuration of the location whose directives are read or merged.
ngx_http_core_loc_conf_t& core_conf(ngx_conf_t* cf) noexcept;

/// Makes `handler` answer in the location. Returns NGX_CONF_OK, or what is wrong if another
/// directive answers there.
char* set_content_handler(ngx_conf_t* cf, ngx_http_handler_pt handler) noexcept;

/// When a location that has `directive`, at `position`, is merged: whether no later directive has
/// replaced its handler. Logs one line if one has. In a limit_except block, where nginx does not
/// use the location's handler, it is set again.
bool keeps_content_handler(
    ngx_conf_t* cf, const char* directive, ngx_http_handler_pt handler,
    const ConfPosition& position) noexcept;

}  // namespace ratelimit
