#include "zone/decision_set.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// An empty retry time is the longest: never.
bool longer(std::optional<microseconds> left, std::optional<microseconds> right) noexcept
{
    if (!left || !right) {
        return !left && right;
    }
    return *left > *right;
}

bool refuses(const DecidedLimit& limit) noexcept
{
    return !limit.shadow && !limit.state.granted;
}

/// Whether `left` has less left than `right`: by share, then a refusal before a grant.
bool less_left(const DecidedLimit& left, const DecidedLimit& right) noexcept
{
    if (left.shadow != right.shadow) {
        return right.shadow;
    }
    const auto left_share = left.state.remaining * right.policy.limit();
    const auto right_share = right.state.remaining * left.policy.limit();
    if (left_share != right_share) {
        return left_share < right_share;
    }
    return refuses(left) && !refuses(right);
}

}  // namespace

microseconds delay_of(const DecidedLimit& limit) noexcept
{
    if (limit.policy.algorithm != Algorithm::leaky_bucket || !limit.state.granted
        || !limit.undelayed) {
        return microseconds{ 0 };
    }
    // In floating point: burst * window does not fit 64 bits for the largest of both.
    const auto& rate = limit.policy.rate;
    const double at_once = static_cast<double>(1 + *limit.undelayed)
        * static_cast<double>(rate.window.count()) / static_cast<double>(rate.quota);
    const double wait = static_cast<double>(limit.state.reset.count()) - at_once;
    // The bucket's reset is rounded up to a microsecond: less than one is no wait.
    return microseconds{ wait < 1 ? 0 : static_cast<std::int64_t>(wait) };
}

Outcome outcome_of(std::span<const DecidedLimit> limits) noexcept
{
    Outcome outcome;

    for (std::size_t i = 1; i < limits.size(); ++i) {
        if (less_left(limits[i], limits[outcome.least_left])) {
            outcome.least_left = i;
        }
    }
    outcome.decided_by = outcome.least_left;

    for (std::size_t i = 0; i < limits.size(); ++i) {
        if (!refuses(limits[i])) {
            continue;
        }
        if (!outcome.refused || longer(limits[i].state.retry_after, outcome.retry_after)) {
            outcome.refused = true;
            outcome.retry_after = limits[i].state.retry_after;
            outcome.decided_by = i;
        }
    }
    if (outcome.refused) {
        return outcome;
    }

    for (std::size_t i = 0; i < limits.size(); ++i) {
        const auto wait = limits[i].shadow ? microseconds{ 0 } : delay_of(limits[i]);
        if (wait > outcome.wait) {
            outcome.wait = wait;
            outcome.decided_by = i;
        }
    }
    return outcome;
}

}  // namespace ratelimit
