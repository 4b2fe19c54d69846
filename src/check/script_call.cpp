#include "check/script_call.h"

#include <array>

namespace ratelimit {

namespace {

/// `param` of the scripts (script_call.h).
std::int64_t param_of(const Policy& policy) noexcept
{
    if (keeps_arrival_time(policy.algorithm)) {
        return policy.limit();
    }
    return policy.algorithm == Algorithm::sliding_window_buckets ? policy.bucket_width().count()
                                                                 : 0;
}

/// now, quota, window, param
std::array<std::int64_t, 4> numbers_of(const LimitCheck& check) noexcept
{
    return { check.now.value_or(microseconds{ 0 }).count(), check.policy.rate.quota,
             check.policy.rate.window.count(), param_of(check.policy) };
}

Statement statement_of(const LimitCheck& check) noexcept
{
    return check.states == nullptr ? Statement{} : check.states->statement();
}

/// `mode` of several_script.
std::int64_t mode_of(const LimitCheck& check) noexcept
{
    const std::int64_t block = check.policy.block.count();
    if (block > 0) {
        return check.shadow ? -block : block;
    }
    return check.shadow ? 1 : 0;
}

void write_limit(const LimitCheck& check, redis::ScriptArguments& arguments)
{
    auto numbers = numbers_of(check);
    if (check.policy.algorithm != Algorithm::concurrency) {
        for (const std::int64_t number : numbers) {
            arguments.arg(number);
        }
        arguments.arg(std::string_view{});
        return;
    }
    const Statement statement = statement_of(check);
    numbers.back() = statement.longest_delay.count();
    for (const std::int64_t number : numbers) {
        arguments.arg(number);
    }
    arguments.begin_packed(4);
    arguments.packed(
        std::array{ statement.holder, statement.number, statement.base, statement.place });
    arguments.end_packed();
}

}  // namespace

void write_sequence_numbers(
    const LimitCheck& check, std::int64_t cost, redis::ScriptArguments& arguments)
{
    const auto [now, quota, window, param] = numbers_of(check);
    if (check.policy.algorithm != Algorithm::concurrency) {
        arguments.packed(std::array{ now, quota, window, param, cost });
        return;
    }
    const Statement statement = statement_of(check);
    arguments.packed(std::array{ now, quota, window, statement.longest_delay.count(), cost,
                                 statement.holder, statement.number, statement.base,
                                 statement.place });
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
        arguments.arg(mode_of(check));
        write_limit(check, arguments);
    }
    for (const std::int64_t number : runs) {
        arguments.arg(number);
    }
}

void write_refund_numbers(
    const LimitCheck& check, const Refund& refund, redis::ScriptArguments& arguments)
{
    const auto [now, quota, window, param] = numbers_of(check);
    arguments.packed(std::array{ static_cast<std::int64_t>(check.policy.algorithm),
                                 refund.taken_at.count(), refund.reset.count(), now, quota, window,
                                 param, refund.cost });
}

}  // namespace ratelimit
