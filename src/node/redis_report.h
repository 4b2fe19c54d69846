#pragma once

#include "nginx/ngx_http.h"
#include "redis/client.h"
#include "store/redis_counters.h"

namespace ratelimit {

/// Kinds of errors, as RedisCounters counts them.
inline constexpr std::array<std::string_view, RedisCounters::error_kinds> redis_error_names = {
    "timeout", "connection", "error_reply"
};

/// Adds to the counters of all workers what this worker counted since its last report: figures of
/// the block's servers, and the number of requests that shared another's call (`coalesced`).
void report_client(
    std::string_view redis, redis::Client& client, std::uint64_t coalesced,
    ngx_shm_zone_t& counters) noexcept;

/// The current time as the counters measure it: monotonic, the same in all workers.
RedisCounters::seconds report_time() noexcept;

/// How many workers this node has, at most RedisCounters::most_workers.
unsigned worker_count() noexcept;

}  // namespace ratelimit
