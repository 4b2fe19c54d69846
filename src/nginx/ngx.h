#pragma once

// The only file that includes the headers of nginx's core; all others include this one.
extern "C" {
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
}
