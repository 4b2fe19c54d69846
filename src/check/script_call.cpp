#include "check/script_call.h"

#include <array>

namespace ratelimit {

namespace {

/// What the algorithm needs besides rate and cost.
std::int64_t param_of(const Policy& policy) noexcept
{
    if (keeps_arrival_time(policy.algorithm)) {
        return policy.limit();
    }
    if (policy.algorithm == Algorithm::sliding_window_buckets) {
        return policy.bucket_width().count();
    }
    return 0;
}

/// now, quota, window, param
std::array<std::int64_t, 4> numbers_of(const LimitCheck& check) noexcept
{
    return { check.now.value_or(microseconds{ 0 }).count(), check.policy.rate.quota,
             check.policy.rate.window.count(), param_of(check.policy) };
}

void write_limit(const LimitCheck& check, redis::ScriptArguments& arguments)
{
    for (const std::int64_t number : numbers_of(check)) {
        arguments.arg(number);
    }
}

}  // namespace

void write_single_numbers(const LimitCheck& check, redis::ScriptArguments& arguments)
{
    const auto [now, quota, window, param] = numbers_of(check);
    arguments.packed(std::array{ now, quota, window, param, check.cost });
}

void write_several_arguments(
    std::span<const LimitCheck> checks, std::span<const std::int64_t> runs,
    redis::ScriptArguments& arguments)
{
    for (const LimitCheck& check : checks) {
        arguments.key(check.redis_key);
    }
    for (const LimitCheck& check : checks) {
        arguments.arg(static_cast<std::int64_t>(check.policy.algorithm));
        arguments.arg(std::int64_t{ check.shadow ? 1 : 0 });
        write_limit(check, arguments);
    }
    for (const std::int64_t number : runs) {
        arguments.arg(number);
    }
}

void write_refund_arguments(
    const LimitCheck& check, microseconds taken, const Verdict& state,
    redis::ScriptArguments& arguments)
{
    arguments.key(check.redis_key);
    arguments.arg(static_cast<std::int64_t>(check.policy.algorithm));
    arguments.arg(taken.count());
    arguments.arg(state.reset.count());
    write_limit(check, arguments);
    arguments.arg(check.cost);
}

}  // namespace ratelimit
