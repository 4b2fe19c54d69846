#pragma once

#include "conf/conf.h"

namespace ratelimit {

/// ratelimit_usage $variable json=path;
char* usage_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

}  // namespace ratelimit
