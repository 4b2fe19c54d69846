// The part of Connection that times its calls: it fails those whose time is up, and leaves a server
// that says nothing.

#include "redis/connection.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

/// The time of what was written in this turn begins at its end, when it leaves.
void Connection::stamp() noexcept
{
    if (unstamped_ == nullptr) {
        return;
    }
    const milliseconds now = loop_.now();
    const auto written = std::chrono::steady_clock::now();
    milliseconds due = milliseconds::max();
    bool delays_exit = false;
    for (PendingCall* record = std::exchange(unstamped_, nullptr); record != nullptr;
         record = record->next) {
        record->sent = now;
        record->written = written;
        record->deadline = deadline_of(*record, now);
        due = std::min(due, record->deadline);
        delays_exit = delays_exit || (record->call != nullptr && record->call->delays_exit());
    }
    // It may run for a later one: the stall bound of calls that have timed out.
    if (!deadline_timer_->running() || deadline_due_ > due) {
        watch_until(due);
    }
    if (delays_exit) {
        deadline_timer_->on_exit(Timer::OnExit::wait);
    }
}

/// What the turn took, which is long when the process was stopped, is not the call's; and one whose
/// time is over although nobody failed it has lost it to such a stop.
milliseconds Connection::deadline_of(const PendingCall& record, milliseconds now) const noexcept
{
    const milliseconds end = now + options_.timeout;
    const milliseconds expires = record.deadline + (now - turn_began_);
    return expires <= now ? end : std::min(end, expires);
}

milliseconds Connection::stall_bound() const noexcept
{
    return options_.timeout + options_.breaker_open;
}

void Connection::check_deadlines()
{
    stamp();
    const milliseconds now = loop_.now();
    if (!fail_overdue(now) || in_flight_.empty()) {
        return;
    }
    if (state_ == State::moving && !anybody_waits()) {
        restart();
        return;
    }
    const milliseconds waiting_since = std::max(in_flight_.front()->sent, last_reply_);
    if (now - waiting_since >= stall_bound()) {
        lose("no reply", Loss::silent);
        return;
    }
    watch_deadlines(now);
}

/// Fails the calls whose time is up; their records stay, to take the replies that may still come.
/// False: the connection was lost meanwhile.
bool Connection::fail_overdue(milliseconds now)
{
    const unsigned losses = losses_;
    for (PendingCall* record = in_flight_.front(); record != nullptr; record = record->next) {
        if (record->call != nullptr && record->deadline <= now) {
            record->timed_out = true;
            owner_.call_timed_out(record->call->stands_for(), record->sent);
            record->release()->on_failure(Failure::timeout);
            if (losses != losses_) {
                return false;
            }
        }
    }
    return true;
}

bool Connection::anybody_waits() const noexcept
{
    if (gathered_ != 0) {
        return true;
    }
    for (const PendingCall* record = in_flight_.front(); record != nullptr; record = record->next) {
        if (record->call != nullptr) {
            return true;
        }
    }
    return false;
}

void Connection::watch_deadlines(milliseconds now)
{
    milliseconds next = std::max(in_flight_.front()->sent, last_reply_) + stall_bound();
    bool delays_exit = false;
    for (const PendingCall* record = in_flight_.front(); record != nullptr; record = record->next) {
        if (record->call != nullptr) {
            delays_exit = delays_exit || record->call->delays_exit();
            next = std::min(next, record->deadline);
        }
    }
    watch_until(std::max(next, now + milliseconds{ 1 }));
    deadline_timer_->on_exit(delays_exit ? Timer::OnExit::wait : Timer::OnExit::ignore);
}

void Connection::watch_until(milliseconds due) noexcept
{
    deadline_due_ = due;
    deadline_timer_->start(std::max(due - loop_.now(), milliseconds{ 1 }));
}

}  // namespace ratelimit::redis
