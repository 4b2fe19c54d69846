#pragma once

#include "nginx/ngx_http.h"

#include <string_view>

namespace ratelimit {

/// Whether the value of the directive that is read can be a user's name or password: not an empty
/// value nor a placeholder that was not filled in, such as ${REDIS_PASSWORD}. Such a value is
/// refused with one line, which never has it.
bool is_login(ngx_conf_t* cf, std::string_view value) noexcept;

}  // namespace ratelimit
