#pragma once

#include "conf/conf.h"

namespace ratelimit {

/// ratelimit_check [peek];
char* check_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

/// Gives `if` and limit_except blocks the ratelimit_check of their location, before the limits are
/// merged. False, after one line in the log: another directive answers in the location.
bool merge_check(ngx_conf_t* cf, const LocationConf& above, LocationConf& conf) noexcept;

/// Call after the limits are merged. False: a limit of the location cannot be used with
/// ratelimit_check, and one line is logged.
bool can_check(ngx_conf_t* cf, const LocationConf& conf) noexcept;

}  // namespace ratelimit
