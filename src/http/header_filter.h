#pragma once

#include "nginx/ngx_http.h"

namespace ratelimit::http {

/// Puts the header filter into nginx's chain.
void install_header_filter() noexcept;

}  // namespace ratelimit::http
