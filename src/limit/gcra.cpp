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
        // Another quota (a variable rate) had other units: less than a microsecond either way.
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
        answer.retry_after.reset();
        if (cost_ <= capacity_) {
            answer.retry_after =
                microseconds{ rounded_up(debt_ + Wide{ cost_ } * window_ - full, quota_) };
        }
    }
    if (take) {
        debt_ += Wide{ cost_ } * window_;
    }
    if (take || (moved_ && cost_ > 0)) {
        write();
    }
    answer.remaining = static_cast<std::int64_t>(std::max<Wide>(0, full - debt_) / window_);
    answer.reset = microseconds{ rounded_up(debt_, quota_) };
    return answer;
}

void GcraCheck::write() noexcept
{
    state_.whole = static_cast<std::int64_t>(now_ + debt_ / quota_);
    state_.rest = static_cast<std::int64_t>(debt_ % quota_);
    state_.latest = latest_;
}

microseconds GcraCheck::life() const noexcept
{
    if (state_.whole < now_) {
        return microseconds{ 0 };
    }
    // Of what is stored, not of this check's debt: one of cost 0 may have seen it moved.
    return microseconds{ state_.whole - now_ + (state_.rest > 0 ? 1 : 0) };
}

}  // namespace ratelimit
