#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit {

extern ngx_command_t commands[];

}  // namespace ratelimit
