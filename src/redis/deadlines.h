#pragma once

#include "redis/alarm.h"
#include "redis/in_flight.h"

#include <functional>

namespace ratelimit::redis {

/// The alarm of the calls in flight: for the next deadline, or the end of the longest silence. A
/// process that exits waits for it only while a call wants that.
class Deadlines {
public:
    /// `due`: a deadline has passed. It must end with next(), unless nothing is in flight.
    Deadlines(EventLoop& loop, InFlight& in_flight, std::function<void()> due)
        : loop_(loop), in_flight_(in_flight), alarm_(loop, std::move(due))
    {
    }

    /// The calls of this turn are sent now: their timeouts start.
    void start() noexcept
    {
        if (in_flight_.has_unsent()) {
            const auto watch = in_flight_.mark_sent(loop_.now(), std::chrono::steady_clock::now());
            alarm_.set_no_later_than(watch.due);
            if (watch.delays_exit) {
                alarm_.delay_exit(true);
            }
        }
    }
    /// Some calls have ended.
    void ended() noexcept
    {
        if (in_flight_.empty()) {
            alarm_.delay_exit(false);
        }
    }
    void next() noexcept
    {
        const auto watch = in_flight_.watch(loop_.now());
        alarm_.set(watch.due);
        alarm_.delay_exit(watch.delays_exit);
    }
    void stop() noexcept { alarm_.stop(); }

private:
    EventLoop& loop_;
    InFlight& in_flight_;
    Alarm alarm_;
};

}  // namespace ratelimit::redis
