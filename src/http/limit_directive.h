#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

struct LimitSet;
struct MainConf;

/// ratelimit zone=name [parameters] | off
char* limit_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

/// Finds the zones of a location's limits, checks what depends on them and registers the scripts
/// that decide them. Once for a set, however many locations inherit it.
char* resolve(ngx_conf_t* cf, MainConf& main, LimitSet& set);

}  // namespace ratelimit::http
