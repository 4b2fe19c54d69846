#include "check/script_call.h"

namespace ratelimit {

namespace {

constexpr std::size_t single_arguments = 5;
constexpr std::size_t several_arguments = 7;

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

void write_check(const LimitCheck& check, redis::ScriptArguments& arguments)
{
    arguments.arg(check.now.value_or(microseconds{ 0 }).count());
    arguments.arg(check.policy.rate.quota);
    arguments.arg(check.policy.rate.window.count());
    arguments.arg(param_of(check.policy));
    arguments.arg(check.cost);
}

}  // namespace

redis::ArgumentCount argument_count(std::span<const LimitCheck> checks) noexcept
{
    if (checks.size() == 1) {
        return { 1, single_arguments };
    }
    return { checks.size(), checks.size() * several_arguments };
}

void write_arguments(std::span<const LimitCheck> checks, redis::ScriptArguments& arguments)
{
    for (const LimitCheck& check : checks) {
        arguments.key(check.key);
    }
    if (checks.size() == 1) {
        write_check(checks.front(), arguments);
        return;
    }
    for (const LimitCheck& check : checks) {
        arguments.arg(static_cast<std::int64_t>(check.policy.algorithm));
        arguments.arg(std::int64_t{ check.shadow ? 1 : 0 });
        write_check(check, arguments);
    }
}

}  // namespace ratelimit
