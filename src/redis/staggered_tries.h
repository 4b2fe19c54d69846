#pragma once

#include "loop/event_loop.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace ratelimit::redis {

/// Tries candidates in parallel until one succeeds, as RFC 8305 does with addresses: the next one
/// starts when one has failed, or when none has succeeded for 50 ms.
class StaggeredTries {
public:
    /// `start(index)` starts to try a candidate; false: it could not. `exhausted()`: all candidates
    /// have failed. Both may be called from inside begin and failed, and must not throw.
    StaggeredTries(
        EventLoop& loop, std::function<bool(std::size_t)> start, std::function<void()> exhausted)
        : start_(std::move(start)),
          exhausted_(std::move(exhausted)),
          timer_(loop.make_timer([this] { start_next(); }))
    {
    }

    void begin(std::size_t candidates)
    {
        next_ = 0;
        candidates_ = candidates;
        pending_ = 0;
        running_ = true;
        start_next();
    }

    /// A candidate that was started has failed.
    void failed()
    {
        if (running_) {
            --pending_;
            start_next();
        }
    }

    /// A candidate has succeeded, or the result is no longer needed.
    void end() noexcept
    {
        running_ = false;
        timer_->stop();
    }

    bool running() const noexcept { return running_; }

private:
    static constexpr milliseconds stagger{ 50 };

    void start_next()
    {
        timer_->stop();
        while (next_ < candidates_) {
            ++pending_;
            if (start_(next_++)) {
                if (running_ && next_ < candidates_) {
                    timer_->start(stagger);
                }
                return;
            }
            --pending_;
        }
        if (pending_ == 0 && running_) {
            end();
            exhausted_();
        }
    }

    std::function<bool(std::size_t)> start_;
    std::function<void()> exhausted_;
    std::unique_ptr<Timer> timer_;
    std::size_t next_ = 0;
    std::size_t candidates_ = 0;
    std::size_t pending_ = 0;  // how many are started and have not ended
    bool running_ = false;
};

}  // namespace ratelimit::redis
