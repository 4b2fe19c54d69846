#pragma once

#include "http/ngx_http.h"
#include "redis/client.h"
#include "store/redis_counters.h"

namespace ratelimit::http {

/// Kinds of errors, as RedisCounters counts them.
inline constexpr std::array<std::string_view, RedisCounters::error_kinds> redis_error_names = {
    "timeout", "connection", "error_reply"
};

/// Adds what this worker has seen of the Redis servers of a ratelimit_redis since it last did, and
/// how many requests shared another's call, to the counters of all workers.
void report(
    std::string_view redis, redis::Client& client, std::uint64_t coalesced,
    ngx_shm_zone_t& counters) noexcept;

/// The time of the counters.
RedisCounters::seconds report_time() noexcept;

/// How many workers this node has.
unsigned worker_count() noexcept;

}  // namespace ratelimit::http
