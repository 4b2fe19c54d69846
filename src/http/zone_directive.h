#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

/// ratelimit_zone key zone=name[:size] rate=r [parameters]
char* zone_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit::http
