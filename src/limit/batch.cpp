#include "limit/batch.h"

#include "limit/refill_time.h"
#include "limit/wide.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// As lua/gcra.lua: the debt in 1/quota us, by `window` less for each unit.
microseconds arrival_reset_before(
    const BatchAnswer& answer, const Rate& rate, std::int64_t units) noexcept
{
    const Wide whole = Wide{ answer.reset.count() } - (answer.detail > 0 ? 1 : 0);
    const Wide debt = whole * rate.quota + answer.detail - Wide{ units } * rate.window.count();
    return microseconds{ rounded_up(std::max<Wide>(debt, 0), rate.quota) };
}

/// As lua/sliding_window_counter.lua: when the last but `units` of this window's count, being the
/// previous one's by then, weighs less than one request.
microseconds counter_reset_before(
    const BatchAnswer& answer, const Rate& rate, std::int64_t units) noexcept
{
    const std::int64_t window = rate.window.count();
    const std::int64_t count = answer.detail;
    if (count <= units) {
        return answer.reset;  // not a count that this many can have been part of
    }
    return answer.reset
        + microseconds{ rounded_up(window, count) - rounded_up(window, count - units) };
}

}  // namespace

LimitState state_before(
    const BatchAnswer& answer, const Policy& policy, std::int64_t units) noexcept
{
    LimitState state;
    state.granted = true;
    state.remaining = std::min(policy.limit(), answer.remaining + units);
    state.reset = answer.reset;
    if (units > 0 && keeps_arrival_time(policy.algorithm)) {
        state.reset = arrival_reset_before(answer, policy.rate, units);
    } else if (units > 0 && policy.algorithm == Algorithm::sliding_window_counter) {
        state.reset = counter_reset_before(answer, policy.rate, units);
    }
    return state;
}

LimitState state_in_batch(
    const BatchAnswer& answer, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept
{
    if (index < answer.taken) {
        return state_before(answer, policy, (answer.taken - 1 - index) * cost);
    }
    LimitState state{ answer.admits_next, answer.remaining, answer.reset, answer.retry_after };
    if (answer.admits_next) {
        state.retry_after = microseconds{ 0 };
    }
    return state;
}

LimitState state_without(
    const BatchAnswer& answer, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept
{
    LimitState state = state_before(answer, policy, (answer.taken - index) * cost);
    if (index == 0) {
        state.reset = answer.reset_before;
    }
    return state;
}

void put_back(LimitState& state, const Policy& policy, std::int64_t cost) noexcept
{
    state.remaining = std::min(policy.limit(), state.remaining + cost);
    if (state.remaining == policy.limit()) {
        state.reset = microseconds{ 0 };
    } else if (keeps_arrival_time(policy.algorithm)) {
        state.reset -= std::min(state.reset, refill_time_floor(cost, policy.rate));
    }
}

microseconds life_ahead(const BatchAnswer& answer, Algorithm algorithm) noexcept
{
    return algorithm == Algorithm::fixed_window ? answer.reset : std::chrono::seconds{ 1 };
}

}  // namespace ratelimit
