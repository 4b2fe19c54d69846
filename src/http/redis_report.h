#pragma once

#include "http/redis_block.h"
#include "redis/server_stats.h"
#include "store/redis_counters.h"

namespace ratelimit::http {

struct MainConf;

/// Kinds of errors, as RedisCounters counts them.
inline constexpr std::array<std::string_view, RedisCounters::error_kinds> redis_error_names = {
    "timeout", "connection", "error_reply"
};

/// Adds what this worker has seen of a block's Redis servers since it last did, to what all have.
void report(RedisBlock& block) noexcept;

/// What all workers have.
RedisCounters redis_counters(const MainConf& conf) noexcept;
RedisCounters::seconds report_time() noexcept;

/// So many workers this node has.
unsigned worker_count() noexcept;

}  // namespace ratelimit::http
