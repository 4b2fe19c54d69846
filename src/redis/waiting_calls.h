#pragma once

#include "redis/alarm.h"
#include "redis/call_queue.h"

#include <functional>
#include <utility>

namespace ratelimit::redis {

/// Calls that cannot be sent yet. Each waits until it expires.
class WaitingCalls {
public:
    /// `overdue` is called with the number of requests of overdue calls, before they fail.
    WaitingCalls(EventLoop& loop, std::function<void(unsigned)> overdue)
        : loop_(loop), overdue_(std::move(overdue)), alarm_(loop, [this] { fail_overdue(); })
    {
    }

    void add(Call& call)
    {
        auto& record = *new PendingCall;
        record.attach(call);
        queue_.push(record);
        alarm_.set_no_later_than(call.routing.expires);
        if (call.delays_exit) {
            alarm_.delay_exit(true);
        }
    }

    bool empty() const noexcept { return queue_.empty(); }

    /// Removes all calls, and passes each to `send` in order of arrival. If that returns false, the
    /// call fails.
    template <class Send>
    void release(const Send& send) noexcept
    {
        stop();
        release_all(std::exchange(queue_, {}), [&send](Call& call, bool) noexcept {
            if (!sent_by(send, call)) {
                call.end_unanswered();
            }
        });
    }

    void end_all() noexcept
    {
        stop();
        redis::end_all(std::exchange(queue_, {}));
    }

private:
    void stop() noexcept
    {
        alarm_.stop();
        alarm_.delay_exit(false);
    }

    template <class Send>
    static bool sent_by(const Send& send, Call& call) noexcept
    try {
        return send(call);
    } catch (const std::exception&) {
        return false;  // out of memory
    }

    void fail_overdue() noexcept
    {
        const milliseconds now = loop_.now();
        CallQueue all = std::exchange(queue_, {});
        CallQueue overdue;
        bool delays_exit = false;
        unsigned checks = 0;
        milliseconds next = milliseconds::max();
        while (!all.empty()) {
            PendingCall& record = all.pop();
            const bool waits = record.call != nullptr && record.call->routing.expires > now;
            checks += waits || record.call == nullptr ? 0 : record.call->request_count();
            delays_exit = delays_exit || (waits && record.call->delays_exit);
            (waits ? queue_ : overdue).push(record);
            next = waits ? std::min(next, record.call->routing.expires) : next;
        }
        alarm_.delay_exit(delays_exit);
        if (!queue_.empty()) {
            alarm_.set(next);
        }
        if (checks > 0) {
            overdue_(checks);
        }
        release_all(overdue, [](Call& call, bool) noexcept { call.end_expired(); });
    }

    EventLoop& loop_;
    std::function<void(unsigned)> overdue_;
    CallQueue queue_;
    Alarm alarm_;
};

}  // namespace ratelimit::redis
