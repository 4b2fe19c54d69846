#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

namespace ratelimit {

/// A reading of a clock. The process may have stood still between the two times of the steady
/// clock.
struct ClockReading {
    std::chrono::microseconds called{ 0 };       // before the clock was read, by the steady clock
    std::chrono::microseconds since_epoch{ 0 };  // what it showed
    std::chrono::microseconds now{ 0 };          // after that, by the steady clock
};

/// Whether a clock that may be set was set back, as its readings show beside the steady clock.
/// Trivially copyable: it may lie in shared memory.
class ClockSteps {
    using microseconds = std::chrono::microseconds;

public:
    /// The most that one clock, or two, differ without a step.
    static constexpr microseconds drift = std::chrono::seconds{ 3 };

    void note(const ClockReading& reading) noexcept
    {
        const microseconds ahead = reading.since_epoch - reading.now;
        const auto& before = ahead_ ? ahead_ : others_ahead_;
        if (before && reading.since_epoch + drift < *before + reading.called) {
            set_back(*before - ahead, reading.now);
            ahead_ = ahead;
        } else if (!ahead_ || ahead > *ahead_) {
            ahead_ = ahead;  // a step forward may be taken back
        }
    }

    /// The clock is ahead of the steady clock by exactly this.
    void set_ahead(microseconds ahead) noexcept { ahead_ = ahead; }
    /// Empty: there was no reading.
    std::optional<microseconds> ahead() const noexcept { return ahead_; }

    /// From now on this clock is used in place of the other one, with whose readings its own are
    /// compared, too.
    void takes_over_from(const ClockSteps& other, microseconds now) noexcept
    {
        const auto& theirs = other.ahead_ ? other.ahead_ : other.others_ahead_;
        catches_up_ = std::max(catches_up_, other.catches_up_);
        if (!ahead_) {
            others_ahead_ = std::max(others_ahead_, theirs);
        } else if (theirs && *ahead_ + drift < *theirs) {
            set_back(*theirs - *ahead_, now);
        }
    }

    /// Whether it was set back by more than clocks drift apart, and less than `span` has passed
    /// since it caught up with its earlier time, which counts as done a day after the step at the
    /// latest. A reading notices a step, so the step may be older.
    bool set_back_within(microseconds span, microseconds now) const noexcept
    {
        return catches_up_ && now - *catches_up_ < span;
    }

    /// The steady clock's time when this clock shows `since_epoch`, by the steps that were noted.
    microseconds steady(microseconds since_epoch) const noexcept
    {
        return since_epoch - ahead_.value_or(microseconds{ 0 });
    }

private:
    static constexpr microseconds longest_catch_up = std::chrono::hours{ 24 };

    void set_back(microseconds by, microseconds now) noexcept
    {
        catches_up_ = std::max(catches_up_, std::optional{ now + std::min(by, longest_catch_up) });
    }

    // How far the clock is ahead of the steady clock; empty: not known.
    std::optional<microseconds> ahead_;
    std::optional<microseconds> others_ahead_;  // of the clock before, while ahead_ is not known
    std::optional<microseconds> catches_up_;    // when it has caught up with its earlier time
};

}  // namespace ratelimit
