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
    std::string_view redis_key;  // the whole of it; binary
    Policy policy;
    std::int64_t cost = 1;  // 0: the state is read and nothing taken
    bool shadow = false;    // never stands in the way of the other limits (several_script only)
    /// Since the epoch, by this node's clock; empty: Redis's clock decides.
    std::optional<microseconds> now;
};

/// KEYS and ARGV of a check of one limit (single_script) or of several (several_script):
///   single   KEYS key; ARGV one, of now quota window param cost, which costs Redis less than five;
///            more keys have their numbers behind those
///   several  KEYS key...; ARGV for each limit: algorithm shadow now quota window param; then for
///            each run of requests of the same costs: how many, and the cost for each limit
/// now: microseconds since the epoch, 0: Redis's TIME. window: microseconds. param: the capacity
/// for token_bucket, leaky_bucket and gcra (Policy::limit), the bucket's width in microseconds for
/// sliding_window_buckets, else 0.
inline constexpr redis::BatchFormat batch_format{ 5, 32 };
void write_single_numbers(const LimitCheck& check, redis::ScriptArguments& arguments);

/// `runs`: the runs' numbers, as they are written.
constexpr redis::ArgumentCount several_argument_count(
    std::size_t checks, std::span<const std::int64_t> runs) noexcept
{
    return { checks, checks * 6 + runs.size() };
}
void write_several_arguments(
    std::span<const LimitCheck> checks, std::span<const std::int64_t> runs,
    redis::ScriptArguments& arguments);

/// KEYS and ARGV of refund_script, for one limit: KEYS key; ARGV algorithm taken reset now quota
/// window param cost. `taken`: the time of the check, by the clock that decided; `state`: its
/// answer.
inline constexpr redis::ArgumentCount refund_argument_count{ 1, 8 };
void write_refund_arguments(
    const LimitCheck& check, microseconds taken, const Verdict& state,
    redis::ScriptArguments& arguments);

}  // namespace ratelimit
