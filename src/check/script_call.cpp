#include "check/script_call.h"

#include <algorithm>
#include <array>

namespace ratelimit {

namespace {

Statement statement_of(const LimitCheck& check) noexcept
{
    return check.states == nullptr ? Statement{} : *check.states;
}

/// `param` of the scripts (script_call.h).
std::int64_t param_of(const LimitCheck& check) noexcept
{
    const Policy& policy = check.policy;
    if (keeps_arrival_time(policy.algorithm)) {
        return policy.limit();
    }
    if (counts_at_one_time(policy.algorithm)) {
        return statement_of(check).longest_delay.count();
    }
    return traits_of(policy.algorithm).precision ? policy.bucket_width().count()
                                                 : policy.begin.count();
}

/// now, quota, window, param
std::array<std::int64_t, 4> numbers_of(const LimitCheck& check) noexcept
{
    const Policy& policy = check.policy;
    const bool by_capacity = keeps_arrival_time(policy.algorithm);
    const auto now = check.now ? policy.within_period(*check.now) : microseconds{ 0 };
    // The script of concurrency adds the bucket itself.
    const microseconds window =
        traits_of(policy.algorithm).precision ? policy.counted_for() : policy.rate.window;
    return { now.count(), by_capacity ? policy.rate.quota : policy.limit(), window.count(),
             param_of(check) };
}

}  // namespace

std::size_t count_blocks(std::span<const LimitCheck> checks) noexcept
{
    return static_cast<std::size_t>(std::count_if(checks.begin(), checks.end(), blocks));
}

void write_check_keys(std::span<const LimitCheck> checks, redis::ScriptArguments& arguments)
{
    for (const LimitCheck& check : checks) {
        arguments.key(check.redis_key);
    }
    for (const LimitCheck& check : checks) {
        if (blocks(check)) {
            arguments.key(check.block_key);
        }
    }
}

void write_sequence_numbers(
    const LimitCheck& check, std::int64_t cost, redis::ScriptArguments& arguments)
{
    const auto [now, quota, window, param] = numbers_of(check);
    arguments.packed(std::array{ now, quota, window, param, cost });
}

void write_holder(const LimitCheck& check, redis::ScriptArguments& arguments)
{
    if (counts_at_one_time(check.policy.algorithm)) {
        write_statement(statement_of(check), arguments);
    }
}

void write_statement(const Statement& statement, redis::ScriptArguments& arguments)
{
    const auto [holder, number, base, place, delay] = statement;
    arguments.packed(std::array{ holder, number, base, place });
}

redis::ArgumentCount several_argument_count(std::span<const LimitCheck> checks) noexcept
{
    return { checks.size() + count_blocks(checks), 2 };
}

void write_several_arguments(
    std::span<const LimitCheck> checks, std::span<const std::int64_t> runs,
    redis::ScriptArguments& arguments)
{
    write_check_keys(checks, arguments);
    arguments.begin_packed();
    auto last_key = static_cast<std::int64_t>(checks.size());
    for (const LimitCheck& check : checks) {
        const auto [now, quota, window, param] = numbers_of(check);
        const std::int64_t mode = (blocks(check) ? 2 * ++last_key : 0) + (check.shadow ? 1 : 0);
        arguments.packed(std::array{ static_cast<std::int64_t>(check.policy.algorithm), mode, now,
                                     quota, window, param });
        write_statement(statement_of(check), arguments);
    }
    arguments.end_packed();
    arguments.begin_packed();
    arguments.packed(runs);
    arguments.end_packed();
}

void write_refund_numbers(
    const LimitCheck& check, const Refund& refund, redis::ScriptArguments& arguments)
{
    const auto [now, quota, window, param] = numbers_of(check);
    arguments.packed(std::array{ static_cast<std::int64_t>(check.policy.algorithm),
                                 refund.taken_at.count(), refund.reset.count(), now, quota, window,
                                 param, refund.cost });
}

void write_block_numbers(
    std::optional<microseconds> now, const BlockStatement& statement,
    redis::ScriptArguments& arguments)
{
    arguments.packed(std::array{ now.value_or(microseconds{ 0 }).count(), statement.at.count(),
                                 statement.begins.count(), statement.ends.count(),
                                 statement.lasts.count() });
}

}  // namespace ratelimit
