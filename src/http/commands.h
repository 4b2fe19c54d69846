#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

extern ngx_command_t commands[];

}  // namespace ratelimit::http
