#pragma once

#include "conf/conf.h"

namespace ratelimit {

/// ratelimit_api [write=on|off] [user=$variable];
char* api_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

/// Gives `if` and limit_except blocks the ratelimit_api of their location. False, after one line in
/// the log: another directive of the location, such as proxy_pass, took its place.
bool merge_api(ngx_conf_t* cf, const LocationConf& above, LocationConf& conf) noexcept;

}  // namespace ratelimit
