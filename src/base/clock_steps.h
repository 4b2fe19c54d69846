#pragma once

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
public:
    void note(const ClockReading& reading) noexcept
    {
        constexpr std::chrono::microseconds drift = std::chrono::seconds{ 3 };
        const std::chrono::microseconds ahead = reading.since_epoch - reading.now;
        if (ahead_ && reading.since_epoch + drift < *ahead_ + reading.called) {
            ahead_ = ahead;
            set_back_ = reading.now;
        } else if (!ahead_ || ahead > *ahead_) {
            ahead_ = ahead;  // a step forward may be taken back
        }
    }

    /// The clock is ahead of the steady clock by exactly this.
    void set_ahead(std::chrono::microseconds ahead) noexcept { ahead_ = ahead; }
    /// Empty: there was no reading.
    std::optional<std::chrono::microseconds> ahead() const noexcept { return ahead_; }

    /// Whether it was set back within `span`, by more than clocks drift apart. A reading notices a
    /// step, so the step may be older.
    bool set_back_within(
        std::chrono::microseconds span, std::chrono::microseconds now) const noexcept
    {
        return set_back_ && now - *set_back_ < span;
    }

    /// The time by the steady clock at which it shows `since_epoch`, as far as it was noted.
    std::chrono::microseconds steady(std::chrono::microseconds since_epoch) const noexcept
    {
        return since_epoch - ahead_.value_or(std::chrono::microseconds{ 0 });
    }

private:
    std::optional<std::chrono::microseconds> ahead_;  // of the steady clock
    std::optional<std::chrono::microseconds>
        set_back_;  // when that was noticed, by the steady clock
};

}  // namespace ratelimit
