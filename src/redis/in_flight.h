#pragma once

#include "redis/call_queue.h"

#include <algorithm>
#include <chrono>
#include <optional>

namespace ratelimit::redis {

/// The calls of a connection that are written and have no reply yet, in the order of the replies,
/// each with its deadline. It has no clock and no timer: `now` is the loop's time.
class InFlight {
public:
    /// When to check the deadlines next, and whether a process that exits waits for that.
    struct Watch {
        milliseconds due = milliseconds::max();
        bool delays_exit = false;
    };

    /// The calls of one command, which share its reply.
    struct Command {
        CallQueue calls;
        microseconds sent{ 0 };  // by the steady clock
        bool in_time = false;    // at least one of the calls has not timed out
    };

    /// `timeout`: of a call. `longest_silence`: time without any reply while calls are in flight.
    InFlight(milliseconds timeout, milliseconds longest_silence) noexcept
        : timeout_(timeout), longest_silence_(longest_silence)
    {
    }

    bool empty() const noexcept { return calls_.empty(); }
    std::size_t size() const noexcept { return calls_.size(); }
    /// Whether a caller waits for any of the replies.
    bool awaited() const noexcept;
    milliseconds last_reply() const noexcept { return last_reply_; }
    /// The most memory of the oldest command's reply, and of any reply to a handshake.
    std::size_t longest_reply() const noexcept
    {
        return empty() ? usual_reply : std::max(usual_reply, calls_.front()->longest_reply);
    }

    /// Call before the first call of a turn of the loop is written.
    void begin_turn(milliseconds now) noexcept { turn_began_ = now; }
    /// Adds calls that were written as one command. They are sent at the end of the turn.
    void add(CallQueue& command) noexcept;
    /// Whether calls have been added since the last mark_sent().
    bool has_unsent() const noexcept { return unsent_ != nullptr; }
    bool oldest_is_unsent() const noexcept { return has_unsent() && unsent_ == calls_.front(); }
    /// The calls of this turn are sent now: their timeouts start.
    Watch mark_sent(milliseconds now, microseconds steady_now) noexcept;

    /// A reply of any kind has arrived.
    void replied(milliseconds now) noexcept { last_reply_ = now; }
    /// Removes the oldest command, which has its reply. There must be one.
    Command take_oldest() noexcept;
    /// The calls keep their deadlines.
    CallQueue take_all() noexcept;

    /// Whether a call that has timed out wants its late reply.
    bool wants_late_replies() const noexcept;

    /// Visits each call whose deadline has passed, as long as `visit` returns true. Their records
    /// stay until the replies arrive. False: `visit` returned false.
    template <class Visit>
    bool each_overdue(milliseconds now, Visit&& visit)
    {
        // A visit may add calls, which are not sent yet.
        for (PendingCall* call = calls_.front(); call != unsent_; call = call->next) {
            if (call->awaited() && call->deadline <= now) {
                call->timed_out = true;
                if (!visit(*call)) {
                    return false;
                }
            }
        }
        return true;
    }
    /// Since when a reply is missing. Must not be empty.
    milliseconds silent_since() const noexcept;
    /// When that has lasted for `longest_silence`. Must not be empty.
    milliseconds silent_at() const noexcept
    {
        return silent_at_ ? *silent_at_ : silent_since() + longest_silence_;
    }
    /// It is at this time instead.
    void silent_at(milliseconds time) noexcept { silent_at_ = time; }
    /// Must not be empty.
    Watch watch(milliseconds now) const noexcept;

private:
    milliseconds deadline_of(const Call& call, milliseconds now) const noexcept;

    const milliseconds timeout_;
    const milliseconds longest_silence_;
    CallQueue calls_;
    PendingCall* unsent_ = nullptr;  // the first call of this turn
    milliseconds turn_began_{ 0 };
    milliseconds last_reply_{ 0 };
    std::optional<milliseconds> silent_at_;
};

}  // namespace ratelimit::redis
