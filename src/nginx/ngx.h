#pragma once

// The one door to nginx's core: every other file includes this, never <ngx_*.h>.
extern "C" {
#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
}
