#pragma once

#include "nginx/ngx.h"

// Only src/http knows nginx's HTTP part.
extern "C" {
#include <ngx_http.h>
}
