#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit {

/// ratelimit_zone key zone=name[:size] rate=r [parameters]
char* zone_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit
