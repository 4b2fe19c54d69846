#pragma once

#include "http/ngx_http.h"

namespace ratelimit::http {

/// ratelimit_api [write=on|off] [user=$variable];
char* api_directive(ngx_conf_t* cf, ngx_command_t* command, void* conf) noexcept;

/// The content handler of a location with ratelimit_api.
ngx_int_t api_handler(ngx_http_request_t* r) noexcept;

}  // namespace ratelimit::http
