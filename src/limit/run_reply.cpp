#include "limit/run_reply.h"

#include "limit/refill_time.h"
#include "limit/wide.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// As in lua/gcra.lua: the debt is in 1/quota us, and each unit adds `window` to it.
microseconds arrival_reset_before(
    const RunReply& reply, const Rate& rate, std::int64_t units) noexcept
{
    const Wide whole = Wide{ reply.reset.count() } - (reply.detail > 0 ? 1 : 0);
    const Wide debt = whole * rate.quota + reply.detail - Wide{ units } * rate.window.count();
    return microseconds{ rounded_up(std::max<Wide>(debt, 0), rate.quota) };
}

/// As in lua/sliding_window_counter.lua: the time until this window's count without `units`, which
/// is the previous count by then, weighs less than one request.
microseconds counter_reset_before(
    const RunReply& reply, const Rate& rate, std::int64_t units) noexcept
{
    const std::int64_t window = rate.window.count();
    const std::int64_t count = reply.detail;
    if (count <= units) {
        return reply.reset;  // the count does not include these units: nothing to compute from
    }
    return reply.reset
        + microseconds{ rounded_up(window, count) - rounded_up(window, count - units) };
}

/// A request may end at any time: a second while anything is held, else 0.
microseconds held_reset(const Policy& policy, std::int64_t remaining) noexcept
{
    return remaining < policy.limit() ? std::chrono::seconds{ 1 } : std::chrono::seconds{ 0 };
}

}  // namespace

Verdict state_before(const RunReply& reply, const Policy& policy, std::int64_t units) noexcept
{
    Verdict state;
    state.granted = true;
    state.remaining = reply.remaining;
    state.reset = reply.reset;
    if (units > 0) {
        state.remaining = std::min(policy.limit(), reply.remaining + units);
    }
    if (units > 0 && keeps_arrival_time(policy.algorithm)) {
        state.reset = arrival_reset_before(reply, policy.rate, units);
    } else if (units > 0 && traits_of(policy.algorithm).weighted) {
        state.reset = counter_reset_before(reply, policy.rate, units);
    } else if (counts_at_one_time(policy.algorithm)) {
        state.reset = held_reset(policy, state.remaining);
    }
    apply_block(state, rest_of_block(reply.blocked, policy));
    return state;
}

Verdict state_in_run(
    const RunReply& reply, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept
{
    if (index < reply.taken) {
        return state_before(reply, policy, (reply.taken - 1 - index) * cost);
    }
    Verdict state{ reply.admits_next, reply.remaining, reply.reset, reply.retry_after };
    if (reply.admits_next) {
        state.retry_after = microseconds{ 0 };
    }
    apply_block(state, rest_of_block(reply.blocked, policy));
    return state;
}

Verdict state_without(
    const RunReply& reply, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept
{
    Verdict state = state_before(reply, policy, (reply.taken - index) * cost);
    if (index == 0 && !counts_at_one_time(policy.algorithm)) {
        state.reset = reply.reset_before;
    }
    return state;
}

void refund_verdict(Verdict& state, const Policy& policy, std::int64_t cost) noexcept
{
    state.remaining = std::min(policy.limit(), state.remaining + cost);
    if (state.remaining == policy.limit()) {
        state.reset = microseconds{ 0 };
    } else if (keeps_arrival_time(policy.algorithm)) {
        state.reset -= std::min(state.reset, refill_time_floor(cost, policy.rate));
    }
}

microseconds lease_life(const RunReply& reply, Algorithm algorithm) noexcept
{
    return algorithm == Algorithm::fixed_window ? reply.reset : std::chrono::seconds{ 1 };
}

}  // namespace ratelimit
