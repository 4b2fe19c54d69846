#pragma once

#include "loop/event_loop.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace ratelimit::redis {

/// A timer for a time of the loop's clock. A process that exits waits for it only after
/// delay_exit(true).
class Alarm {
public:
    Alarm(EventLoop& loop, std::function<void()> fired)
        : loop_(loop), timer_(loop.make_timer(std::move(fired)))
    {
    }

    void set(milliseconds due) noexcept
    {
        due_ = due;
        timer_->start(std::max(due - loop_.now(), milliseconds{ 1 }));
    }
    void set_no_later_than(milliseconds due) noexcept
    {
        if (!timer_->running() || due < due_) {
            set(due);
        }
    }
    void stop() noexcept { timer_->stop(); }
    bool running() const noexcept { return timer_->running(); }
    void delay_exit(bool choice) noexcept { timer_->delay_exit(choice); }

private:
    EventLoop& loop_;
    std::unique_ptr<Timer> timer_;
    milliseconds due_{ 0 };  // when it fires, if it is running
};

}  // namespace ratelimit::redis
