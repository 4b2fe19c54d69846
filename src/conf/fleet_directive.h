#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit {

/// ratelimit_fleet [redis=name] [node=name] [size=size];
char* fleet_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit
