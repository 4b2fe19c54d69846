#include "limit/gcra.h"

#include <algorithm>

namespace ratelimit {

GcraCheck::GcraCheck(
    ArrivalTime& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept
    : state_(state),
      now_(now.count()),
      quota_(policy.rate.quota),
      window_(policy.rate.window.count()),
      capacity_(policy.limit()),
      cost_(cost),
      latest_(std::max(state.latest, now_))
{
    std::int64_t arrival = state.whole;
    if (latest_ - now_ > window_) {
        moved_ = true;
        arrival -= latest_ - now_;
        latest_ = now_;
    }
    if (arrival >= now_) {
        // With a variable rate, the rest may be in another quota's units. The error is less than a
        // microsecond.
        const std::int64_t rest = std::min(state.rest, quota_ - 1);
        debt_ = Wide{ arrival - now_ } * quota_ + rest;
    }
    const Wide full = Wide{ capacity_ } * window_;
    granted_ = cost == 0 || debt_ + Wide{ cost } * window_ <= full;
}

Verdict GcraCheck::commit(bool take) noexcept
{
    take = take && granted_ && cost_ > 0;
    const Wide full = Wide{ capacity_ } * window_;
    Verdict answer;
    answer.granted = granted_;
    if (!granted_) {
        const microseconds retry{ rounded_up(debt_ + Wide{ cost_ } * window_ - full, quota_) };
        answer.retry_after = cost_ <= capacity_ ? std::optional(retry) : std::nullopt;
    }
    if (take || (moved_ && cost_ > 0)) {
        count(take ? Wide{ cost_ } * window_ : 0);
    }
    answer.remaining = static_cast<std::int64_t>(std::max<Wide>(0, full - debt_) / window_);
    answer.reset = microseconds{ rounded_up(debt_, quota_) };
    return answer;
}

void GcraCheck::charge() noexcept
{
    const Wide longest = Wide{ longest_refill.count() } * quota_;
    count(std::clamp<Wide>(longest - debt_, 0, Wide{ cost_ } * window_));
}

/// `units`: of the debt.
void GcraCheck::count(Wide units) noexcept
{
    debt_ += units;
    state_.whole = static_cast<std::int64_t>(now_ + debt_ / quota_);
    state_.rest = static_cast<std::int64_t>(debt_ % quota_);
    state_.latest = latest_;
}

microseconds GcraCheck::life() const noexcept
{
    if (state_.whole < now_) {
        return microseconds{ 0 };
    }
    // From the stored state, not from debt_: a check of cost 0 does not store a moved state.
    return microseconds{ state_.whole - now_ + (state_.rest > 0 ? 1 : 0) };
}

void refund(
    ArrivalTime& state, const Policy& policy, microseconds now, const Refund& taken) noexcept
{
    const std::int64_t quota = policy.rate.quota;
    const Wide left = Wide{ (taken.taken_at + taken.reset - now).count() - 1 } * quota;
    const Wide own = std::min(Wide{ taken.cost } * policy.rate.window.count(), left);
    const Wide debt = Wide{ state.whole - now.count() } * quota + std::min(state.rest, quota - 1);
    if (own >= debt) {
        state = {};
    } else if (own > 0) {
        state.whole = static_cast<std::int64_t>(now.count() + (debt - own) / quota);
        state.rest = static_cast<std::int64_t>((debt - own) % quota);
        state.latest = std::min(state.latest, state.whole);
    }
}

}  // namespace ratelimit
