#pragma once

#include "limit/decision.h"
#include "limit/policy.h"
#include "redis/call.h"

#include <optional>
#include <span>
#include <string_view>

namespace ratelimit {

/// One limit of one request, as a script is asked about it.
struct LimitCheck {
    std::string_view key;  // the whole Redis key; binary
    Policy policy;
    std::int64_t cost = 1;  // 0: the state is read and nothing taken
    bool shadow = false;    // never stands in the way of the other limits (several_script only)
    /// Since the epoch, by this node's clock; empty: Redis's clock decides.
    std::optional<microseconds> now;
};

/// KEYS and ARGV of a check of one limit (single_script) or of several (several_script):
///   single   KEYS key; ARGV now quota window param cost
///   several  KEYS key...; ARGV for each limit: algorithm shadow now quota window param cost
/// now: microseconds since the epoch, 0: Redis's TIME. window: microseconds. param: the capacity
/// for token_bucket, leaky_bucket and gcra (Policy::limit), the bucket's width in microseconds for
/// sliding_window_buckets, else 0.
redis::ArgumentCount argument_count(std::span<const LimitCheck> checks) noexcept;
void write_arguments(std::span<const LimitCheck> checks, redis::ScriptArguments& arguments);

}  // namespace ratelimit
