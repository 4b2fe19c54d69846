#pragma once

#include <chrono>

namespace ratelimit::redis {

using std::chrono::milliseconds;

/// Opens after `failures` silences of a server in a row; the next reply closes it. A silence is a
/// command, or an attempt to connect, without a reply in time. Commands that were in flight
/// together are one silence, however many checks waited for them. (After the circuit breaker of M.
/// Nygard, "Release It!".)
class CircuitBreaker {
public:
    explicit CircuitBreaker(int failures) noexcept : limit_(failures) {}

    bool open() const noexcept { return silences_ >= limit_; }

    /// A command or attempt that began at that time has no reply yet. True: this opened the
    /// breaker.
    bool silent(milliseconds began, milliseconds now) noexcept
    {
        if (open() || began < noted_) {
            return false;
        }
        noted_ = now;
        ++silences_;
        return open();
    }

    void answered() noexcept { silences_ = 0; }

private:
    int limit_;
    int silences_ = 0;         // in a row
    milliseconds noted_{ 0 };  // time of the last silence
};

}  // namespace ratelimit::redis
