#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit {

struct LimitSet;
struct MainConf;

/// ratelimit zone=name [parameters] | off
char* limit_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

/// Finds the zones of a location's limits, checks the limits' parameters against them and registers
/// the scripts of their checks; once for each set, also if several locations inherit it. On errors
/// it logs one line and returns NGX_CONF_ERROR.
char* resolve(ngx_conf_t* cf, MainConf& main, LimitSet& set);

}  // namespace ratelimit
