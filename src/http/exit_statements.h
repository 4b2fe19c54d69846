#pragma once

#include "conf/conf.h"

namespace ratelimit::http {

/// States in Redis that this worker holds nothing of the zones with concurrency=, and reports what
/// passed ahead of Redis (ahead=): its process exits, with or without the requests that still run.
/// Call after the clients of all blocks are stopped. nginx's event loop does not run any longer, so
/// a loop and connections of its own are used, for at most connect_timeout + timeout for each
/// block. What is not stated is free after `hold`.
void state_at_exit(MainConf& conf, ngx_log_t& log) noexcept;

}  // namespace ratelimit::http
