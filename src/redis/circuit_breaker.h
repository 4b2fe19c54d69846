#pragma once

#include <algorithm>
#include <chrono>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// Stops asking a server that fails: after so many failures in a row it is open, and nothing goes,
/// for a time; then one trial goes, whose success closes it and whose failure opens it again. (The
/// circuit breaker of M. Nygard's "Release It!".)
class CircuitBreaker {
public:
    CircuitBreaker(int failures, milliseconds open) noexcept : limit_(failures), pause_(open) {}

    bool open() const noexcept { return failures_ >= limit_; }

    /// Whether a call may go now. While it is open: once in each pause, and that call is the trial.
    bool allows(milliseconds now) noexcept
    {
        if (!open()) {
            return true;
        }
        if (now < next_trial_) {
            return false;
        }
        // A trial that is never heard of again does not keep it open for ever.
        next_trial_ = now + pause_;
        return true;
    }

    /// `count` failures at once. True: they opened it.
    bool failed(milliseconds now, unsigned count = 1) noexcept
    {
        const bool was_open = open();
        if (!was_open) {
            failures_ += static_cast<int>(std::min(count, static_cast<unsigned>(limit_)));
        }
        if (open()) {
            next_trial_ = now + pause_;
        }
        return open() && !was_open;
    }

    void succeeded() noexcept { failures_ = 0; }

private:
    int limit_;
    milliseconds pause_;
    int failures_ = 0;  // in a row
    milliseconds next_trial_{ 0 };
};

}  // namespace ratelimit::redis
