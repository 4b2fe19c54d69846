#pragma once

#include "loop/event_loop.h"
#include "redis/call_queue.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace ratelimit::redis {

/// Calls that Redis surely did not execute, and that are sent again after a pause. Many of them are
/// sent over a longer time: Redis is back then, and has other things to do, too.
class RetryQueue {
public:
    /// `send`: false if the call is not accepted, which then ends (Fate::unsent).
    RetryQueue(EventLoop& loop, std::function<bool(Call&)> send)
        : send_(std::move(send)), timer_(loop.make_timer([this] { fire(); }))
    {
        timer_->cancelable(true);
    }
    ~RetryQueue() { end_all(std::exchange(queue_, {}), records_); }
    RetryQueue(const RetryQueue&) = delete;
    RetryQueue& operator=(const RetryQueue&) = delete;

    bool empty() const noexcept { return queue_.empty(); }

    /// False: too many wait, or there is no memory. `urgent`: it undoes what those do that find no
    /// room, and has room of its own.
    bool add(Call& call, bool urgent) noexcept
    try {
        if (urgent ? urgent_ >= most_urgent : queue_.size() - urgent_ >= most) {
            return false;
        }
        PendingCall& record = records_.take();
        record.attach(call);
        record.urgent = urgent;
        urgent_ += urgent ? 1 : 0;
        queue_.push(record);
        if (!timer_->running()) {
            timer_->start(pause);
        }
        return true;
    } catch (const std::exception&) {
        return false;
    }

    /// A server is up again: does not wait for the end of the pause.
    void soon() noexcept
    {
        if (!queue_.empty() && left_ == 0) {
            timer_->start(milliseconds{ 1 });
        }
    }

    template <class Send>
    void send_all(const Send& send) noexcept
    {
        send_some(send, queue_.size());
    }

private:
    static constexpr std::size_t most = 20'000;
    static constexpr std::size_t most_urgent = 2 * most;
    static constexpr milliseconds pause{ 500 };
    static constexpr std::size_t most_at_once = 500;
    static constexpr milliseconds pause_between{ 100 };

    void fire() noexcept
    {
        left_ = std::min(left_ == 0 ? queue_.size() : left_, queue_.size());
        const std::size_t count = std::min(left_, most_at_once);
        left_ -= count;
        send_some(send_, count);
        if (left_ > 0) {
            timer_->start(pause_between);
        } else if (!queue_.empty() && !timer_->running()) {
            timer_->start(pause);  // they came meanwhile
        }
    }

    /// Those that fail come to the end of the queue.
    template <class Send>
    void send_some(const Send& send, std::size_t count) noexcept
    {
        for (; count > 0; --count) {
            PendingCall& record = queue_.pop();
            urgent_ -= record.urgent ? 1 : 0;
            Call* call = records_.end(record);
            if (call != nullptr && !sent(send, *call)) {
                call->end_unanswered();
            }
        }
    }

    template <class Send>
    static bool sent(const Send& send, Call& call) noexcept
    try {
        return send(call);
    } catch (const std::exception&) {
        return false;
    }

    std::function<bool(Call&)> send_;
    RecordPool records_;
    CallQueue queue_;
    std::size_t urgent_ = 0;  // of them
    std::size_t left_ = 0;  // of those that waited when the pause ended; the rest waits for another
    std::unique_ptr<Timer> timer_;
};

}  // namespace ratelimit::redis
