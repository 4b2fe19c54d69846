#include "limit/window_counts.h"

#include "limit/wide.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// The first microsecond of a window in which `previous`, that began it whole and is above `most`,
/// weighs at most `most`.
std::int64_t falls_to(std::int64_t previous, std::int64_t most, std::int64_t window) noexcept
{
    return window - rounded_up((Wide{ most } + 1) * window, previous) + 1;
}

}  // namespace

WindowCheck::WindowCheck(
    WindowCounts& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept
    : state_(state),
      sliding_(policy.algorithm == Algorithm::sliding_window_counter),
      asked_(now.count()),
      quota_(policy.rate.quota),
      window_(policy.rate.window.count()),
      cost_(cost),
      now_(asked_)
{
    read();
    // Not sum + cost: an absurd cost must not overflow.
    granted_ = cost == 0 || cost <= quota_ - sum();
}

void WindowCheck::read() noexcept
{
    seen_.start = asked_ - asked_ % window_;
    if (state_.start == seen_.start) {
        seen_ = state_;
    } else if (sliding_ && state_.start == seen_.start - window_) {
        seen_.previous = state_.current;
    } else if (state_.start > asked_) {
        if (state_.start - asked_ <= window_) {
            seen_ = state_;
            now_ = state_.start;
        } else {
            seen_.current = state_.current + state_.previous;
            moved_ = true;
        }
    }
}

std::int64_t WindowCheck::sum() const noexcept
{
    const Wide in_sight = Wide{ seen_.previous } * (window_ - (now_ - seen_.start));
    return static_cast<std::int64_t>(in_sight / window_) + seen_.current;
}

Verdict WindowCheck::commit(bool take) noexcept
{
    take = take && granted_ && cost_ > 0;
    if (take) {
        seen_.current += cost_;
    }
    if (take || (moved_ && cost_ > 0)) {
        state_ = seen_;
    }
    Verdict answer;
    answer.granted = granted_;
    answer.remaining = std::max<std::int64_t>(0, quota_ - sum());
    answer.reset = reset();
    if (!granted_) {
        answer.retry_after.reset();
        if (cost_ <= quota_) {
            answer.retry_after = retry_after();
        }
    }
    return answer;
}

microseconds WindowCheck::reset() const noexcept
{
    const std::int64_t left = window_ - (asked_ - seen_.start);
    if (!sliding_) {
        return microseconds{ left };
    }
    if (seen_.current > 0) {
        return microseconds{ left + falls_to(seen_.current, 0, window_) };
    }
    if (sum() > 0) {
        return microseconds{ left - window_ + falls_to(seen_.previous, 0, window_) };
    }
    return microseconds{ 0 };
}

/// Of a refused request that may pass one day, so that `previous` is above what it may be.
microseconds WindowCheck::retry_after() const noexcept
{
    const std::int64_t elapsed = asked_ - seen_.start;  // below 0: the clock is behind
    if (!sliding_) {
        return microseconds{ window_ - elapsed };
    }
    const std::int64_t most = quota_ - cost_;
    // While this window lasts, or else in the next, where `current` is the previous one.
    std::int64_t at = window_;
    if (seen_.current <= most) {
        at = falls_to(seen_.previous, most - seen_.current, window_);
    }
    if (at >= window_) {
        at = window_ + (seen_.current > most ? falls_to(seen_.current, most, window_) : 0);
    }
    return microseconds{ at - elapsed };
}

microseconds WindowCheck::life() const noexcept
{
    if (state_.current == 0 && state_.previous == 0) {
        return microseconds{ 0 };
    }
    const std::int64_t end = state_.start + (sliding_ ? 2 : 1) * window_;
    return microseconds{ std::max<std::int64_t>(0, end - asked_) };
}

}  // namespace ratelimit
