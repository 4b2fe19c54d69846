#pragma once

#include "nginx/ngx.h"

// Of the rooms, node, conf and http include nginx's HTTP headers.
extern "C" {
#include <ngx_http.h>
// Also if configured without HTTP/2: with --with-compat, the nginx that loads it may have it.
#include <ngx_http_v2.h>
}
