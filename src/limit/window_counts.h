#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <cstdint>

namespace ratelimit {

/// How many requests passed in a window and in the one before, all that fixed_window and
/// sliding_window_counter keep of a key. Both counts zero: no state.
struct WindowCounts {
    std::int64_t start = 0;  // of the window, us since the epoch
    std::int64_t current = 0;
    std::int64_t previous = 0;  // fixed_window has no use for it: 0

    friend bool operator==(const WindowCounts&, const WindowCounts&) = default;
};

/// One check of a limit in this process's own memory, in two steps, so that several limits can be
/// decided before any of them counts. It answers as lua/fixed_window.lua and
/// lua/sliding_window_counter.lua do, but in exact arithmetic.
///
/// Windows begin at multiples of their length since the epoch. fixed_window counts in each for
/// itself; for sliding_window_counter the window before weighs as much as of its length is still in
/// sight ("approximated sliding window").
class WindowCheck {
public:
    /// Looks, and changes nothing. `now` is a time since the epoch; a cost of 0 always passes.
    WindowCheck(
        WindowCounts& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept;

    /// Whether a request of this cost passes.
    bool granted() const noexcept { return granted_; }

    /// Counts the request if `take`, and if it is granted and costs anything; the answer after
    /// that. To be called once.
    Verdict commit(bool take) noexcept;

    /// After commit: how long from `now` the state matters; zero: it equals an empty state.
    microseconds life() const noexcept;

private:
    void read() noexcept;
    std::int64_t sum() const noexcept;
    microseconds reset() const noexcept;
    microseconds retry_after() const noexcept;

    WindowCounts& state_;
    bool sliding_;
    std::int64_t asked_;  // us since the epoch
    std::int64_t quota_;
    std::int64_t window_;  // us
    std::int64_t cost_;
    std::int64_t now_;    // decided at: the state's time, where the clock is behind it
    WindowCounts seen_;   // the state as of now_
    bool moved_ = false;  // taken over from a start far ahead: the clock ran backwards
    bool granted_ = false;
};

}  // namespace ratelimit
