#pragma once

#include "conf/conf.h"

namespace ratelimit {

/// ratelimit_usage $variable json=path;
char* usage_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

/// Whether a text has a variable of a ratelimit_usage, which is empty until the response has ended.
bool reads_usage(const MainConf& main, std::string_view text) noexcept;

/// The expected text in an error about another parameter than charge=.
inline constexpr std::string_view known_with_response =
    "no variable of \"ratelimit_usage\", which only charge= can have";

/// When all of the configuration is merged: whether each ratelimit_usage is in a location with a
/// limit. Logs one line if one is not.
bool usages_have_limits(ngx_conf_t* cf) noexcept;

}  // namespace ratelimit
