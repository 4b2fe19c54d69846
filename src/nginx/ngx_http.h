#pragma once

#include "nginx/ngx.h"

// Only src/http includes nginx's HTTP headers.
extern "C" {
#include <ngx_http.h>
}
