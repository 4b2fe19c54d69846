#pragma once

#include "limit/policy.h"
#include "limit/refund.h"
#include "limit/verdict.h"

#include <cstdint>

namespace ratelimit {

/// The state of a key for fixed_window and sliding_window_counter: how many requests passed in a
/// window and in the previous one. If both counts are zero, there is no state.
struct WindowCounts {
    std::int64_t start = 0;  // of the window, us since the epoch
    std::int64_t current = 0;
    std::int64_t previous = 0;  // always 0 for fixed_window

    friend bool operator==(const WindowCounts&, const WindowCounts&) = default;
};

/// One check of a limit whose state is in this process's memory, in two steps (constructor and
/// commit), so that several limits can be checked before any of them counts. The verdicts are those
/// of lua/fixed_window.lua and lua/sliding_window_counter.lua, but in exact arithmetic.
///
/// Windows begin at multiples of their length since the epoch. fixed_window considers only the
/// current one. sliding_window_counter adds the previous count, weighted by the share of that
/// window which the sliding window still covers ("approximated sliding window"). A calendar period
/// is a window of its own: its state counts whatever `start` says.
class WindowCheck {
public:
    /// Changes nothing. `now`: since the epoch. A cost of 0 always passes.
    WindowCheck(
        WindowCounts& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept;

    /// Whether a request of this cost passes.
    bool granted() const noexcept { return granted_; }

    /// Counts the request if `take`, and if it is granted and its cost is not 0. Returns the
    /// verdict after that. Call once.
    Verdict commit(bool take) noexcept;

    /// Instead of commit: counts the cost even if the count then exceeds the quota.
    void charge() noexcept;

    /// After commit or charge: how long after `now` the state equals an empty one; zero: it does
    /// now.
    microseconds life() const noexcept;

private:
    void read() noexcept;
    std::int64_t sum() const noexcept;
    microseconds reset() const noexcept;
    microseconds retry_after() const noexcept;

    WindowCounts& state_;
    bool sliding_;
    std::int64_t begin_;         // of the calendar period; 0: none
    std::int64_t request_time_;  // `now`, in us since the epoch
    std::int64_t quota_;
    std::int64_t window_;  // us
    std::int64_t cost_;
    std::int64_t now_;    // time to count at: the start of the state, if the clock is behind it
    WindowCounts seen_;   // the state as of now_
    bool moved_ = false;  // the start was more than a window ahead: the clock ran backwards
    bool granted_ = false;
};

/// Subtracts a cost from the window in which it was counted, if the state still has that window.
void refund(
    WindowCounts& state, const Policy& policy, microseconds now, const Refund& taken) noexcept;

}  // namespace ratelimit
