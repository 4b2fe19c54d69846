#pragma once

#include "loop/event_loop.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace ratelimit::redis {

/// Tries candidates side by side until one succeeds, as RFC 8305 does with addresses: the next one
/// starts when one has failed, or when none has succeeded for a short while.
class StaggeredTries {
public:
    /// `start` begins a try and returns whether it could; `exhausted`: every candidate has failed.
    /// Both may be called from inside begin and failed, and must not throw.
    StaggeredTries(
        EventLoop& loop, std::function<bool(std::size_t)> start, std::function<void()> exhausted)
        : start_(std::move(start)),
          exhausted_(std::move(exhausted)),
          timer_(loop.make_timer([this] { start_next(); }))
    {
        timer_->cancelable(true);
    }

    void begin(std::size_t candidates)
    {
        next_ = 0;
        candidates_ = candidates;
        pending_ = 0;
        running_ = true;
        start_next();
    }

    /// One that was started has failed.
    void failed()
    {
        if (running_) {
            --pending_;
            start_next();
        }
    }

    /// One has succeeded, or none is needed any more.
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
    std::size_t pending_ = 0;  // started, and neither failed nor succeeded yet
    bool running_ = false;
};

}  // namespace ratelimit::redis
