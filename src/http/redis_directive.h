#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

/// ratelimit_redis name { ... }
char* redis_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit::http
