#pragma once

#include "redis/call_queue.h"

#include <chrono>

namespace ratelimit::redis {

/// The calls that a connection has written and that have no reply yet, in the order of the replies,
/// each with its deadline. It has no clock and no timer: `now` is the loop's time.
class InFlight {
public:
    /// When the deadlines have to be checked, and whether a process that exits waits for that.
    struct Watch {
        milliseconds due = milliseconds::max();
        bool delays_exit = false;
    };

    /// The calls of one command, which share its reply.
    struct Command {
        CallQueue calls;
        std::chrono::steady_clock::time_point sent;
        bool in_time = false;  // for one of its callers at least
    };

    /// `timeout`: of a call. `longest_silence`: without any reply, while calls are in flight.
    InFlight(milliseconds timeout, milliseconds longest_silence) noexcept
        : timeout_(timeout), longest_silence_(longest_silence)
    {
    }

    bool empty() const noexcept { return calls_.empty(); }
    std::size_t size() const noexcept { return calls_.size(); }
    /// A caller still waits for a reply.
    bool awaited() const noexcept;
    milliseconds last_reply() const noexcept { return last_reply_; }

    /// The first call of a turn of the loop is about to be written.
    void begin_turn(milliseconds now) noexcept { turn_began_ = now; }
    /// Calls that were written as one command. They leave at the end of the turn.
    void add(CallQueue& command) noexcept;
    /// Calls were added that have not left yet; the oldest call of all is one of them.
    bool has_unsent() const noexcept { return unsent_ != nullptr; }
    bool oldest_is_unsent() const noexcept { return has_unsent() && unsent_ == calls_.front(); }
    /// The calls of this turn leave: their time begins.
    Watch leave(milliseconds now, std::chrono::steady_clock::time_point precise_now) noexcept;

    /// The server said something.
    void replied(milliseconds now) noexcept { last_reply_ = now; }
    /// The oldest command, which was answered. There must be one.
    Command take_oldest() noexcept;
    CallQueue take_all() noexcept;

    /// Visits each call whose time is up, as long as `visit` returns true. Their records stay, to
    /// take the replies that may still come. False: `visit` returned false.
    template <class Visit>
    bool each_overdue(milliseconds now, Visit&& visit)
    {
        for (PendingCall* call = calls_.front(); call != nullptr; call = call->next) {
            if (call->call != nullptr && call->deadline <= now) {
                call->timed_out = true;
                if (!visit(*call)) {
                    return false;
                }
            }
        }
        return true;
    }
    /// No reply has come for `longest_silence` while a call waited. Not when empty.
    bool silent(milliseconds now) const noexcept { return silent_at() <= now; }
    /// Not when empty.
    Watch watch(milliseconds now) const noexcept;

private:
    milliseconds silent_at() const noexcept;
    milliseconds deadline_of(const PendingCall& call, milliseconds now) const noexcept;

    const milliseconds timeout_;
    const milliseconds longest_silence_;
    CallQueue calls_;
    PendingCall* unsent_ = nullptr;  // the first of this turn
    milliseconds turn_began_{ 0 };
    milliseconds last_reply_{ 0 };
};

}  // namespace ratelimit::redis
