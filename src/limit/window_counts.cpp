#include "limit/window_counts.h"

#include "limit/wide.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// The first microsecond of a window in which the weight of the previous window's count is at most
/// `most`. Requires `previous` > `most`.
std::int64_t falls_to(std::int64_t previous, std::int64_t most, std::int64_t window) noexcept
{
    return window - rounded_up((Wide{ most } + 1) * window, previous) + 1;
}

}  // namespace

WindowCheck::WindowCheck(
    WindowCounts& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept
    : state_(state),
      sliding_(traits_of(policy.algorithm).weighted),
      begin_(policy.begin.count()),
      request_time_(policy.within_period(now).count()),
      quota_(policy.limit()),
      window_(policy.rate.window.count()),
      cost_(cost),
      now_(request_time_)
{
    read();
    // Not sum + cost, which could overflow.
    granted_ = cost == 0 || cost <= quota_ - sum();
}

void WindowCheck::read() noexcept
{
    if (begin_ != 0) {
        seen_ = state_;
        seen_.start = begin_;
        return;
    }
    seen_.start = request_time_ - request_time_ % window_;
    if (state_.start == seen_.start) {
        seen_ = state_;
    } else if (sliding_ && state_.start == seen_.start - window_) {
        seen_.previous = state_.current;
    } else if (state_.start > request_time_) {
        if (state_.start - request_time_ <= window_) {
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
        answer.retry_after = cost_ <= quota_ ? std::optional(retry_after()) : std::nullopt;
    }
    return answer;
}

void WindowCheck::charge() noexcept
{
    constexpr std::int64_t most = std::int64_t{ 1 } << 51U;  // as in lua/, where counts are doubles
    seen_.current = std::max(seen_.current, std::min(most, seen_.current + cost_));
    state_ = seen_;
}

microseconds WindowCheck::reset() const noexcept
{
    const std::int64_t left = window_ - (request_time_ - seen_.start);
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

/// For a refused request whose cost is at most the quota.
microseconds WindowCheck::retry_after() const noexcept
{
    const std::int64_t elapsed =
        request_time_ - seen_.start;  // negative: the clock is behind the state
    if (!sliding_) {
        return microseconds{ window_ - elapsed };
    }
    const std::int64_t most = quota_ - cost_;
    // In this window, or else in the next one, where `current` is the previous count.
    std::int64_t at = window_;
    if (seen_.current <= most) {
        at = falls_to(seen_.previous, most - seen_.current, window_);
    }
    if (at >= window_) {
        at = window_ + (seen_.current > most ? falls_to(seen_.current, most, window_) : 0);
    }
    return microseconds{ at - elapsed };
}

void refund(
    WindowCounts& state, const Policy& policy, microseconds now, const Refund& taken) noexcept
{
    const std::int64_t window = policy.rate.window.count();
    const std::int64_t at = taken.taken_at.count();
    const bool in_period = policy.begin.count() != 0;
    if (in_period || (state.start <= at && at < state.start + window)) {
        state.current = std::max<std::int64_t>(0, state.current - taken.cost);
    } else if (state.start - window <= at && at < state.start && state.start <= now.count()) {
        // A start ahead of now means that the clock ran back: then the window of `at` is not known.
        state.previous = std::max<std::int64_t>(0, state.previous - taken.cost);
    }
}

microseconds WindowCheck::life() const noexcept
{
    if (state_.current == 0 && state_.previous == 0) {
        return microseconds{ 0 };
    }
    const std::int64_t end = state_.start + (sliding_ ? 2 : 1) * window_;
    // As in lua/fixed_window.lua: the clock may be set back over the end of a period.
    const microseconds longer = begin_ != 0 ? std::chrono::hours{ 1 } : microseconds{ 0 };
    return longer + microseconds{ std::max<std::int64_t>(0, end - request_time_) };
}

}  // namespace ratelimit
