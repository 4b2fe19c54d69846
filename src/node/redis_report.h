#pragma once

#include "nginx/ngx_http.h"
#include "store/redis_counters.h"

namespace ratelimit {

/// Kinds of errors, as RedisCounters counts them.
inline constexpr std::array<std::string_view, RedisCounters::error_kinds> redis_error_names = {
    "timeout", "connection", "error_reply"
};

/// The current time as the counters measure it: monotonic, the same in all workers.
RedisCounters::seconds report_time() noexcept;

/// How many workers this node has, at most RedisCounters::most_workers.
unsigned worker_count() noexcept;

}  // namespace ratelimit
