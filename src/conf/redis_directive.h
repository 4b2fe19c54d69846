#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit {

/// ratelimit_redis name { ... }
char* redis_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit
