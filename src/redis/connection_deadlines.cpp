// The part of Connection that times its calls: it fails those whose time is up, and leaves a server
// that says nothing.

#include "redis/connection.h"

namespace ratelimit::redis {

/// The calls of this turn leave now.
void Connection::start_deadlines() noexcept
{
    if (!in_flight_.has_unsent()) {
        return;
    }
    const auto watch = in_flight_.leave(loop_.now(), std::chrono::steady_clock::now());
    deadline_alarm_.set_no_later_than(watch.due);
    if (watch.delays_exit) {
        deadline_alarm_.delay_exit(true);
    }
}

void Connection::check_deadlines()
{
    start_deadlines();
    const milliseconds now = loop_.now();
    if (!fail_overdue(now) || in_flight_.empty()) {
        return;
    }
    if (state_ == State::moving && !anybody_waits()) {
        restart();
        return;
    }
    if (in_flight_.silent(now)) {
        lose("no reply", Loss::silent);
        return;
    }
    const auto watch = in_flight_.watch(now);
    deadline_alarm_.set(watch.due);
    deadline_alarm_.delay_exit(watch.delays_exit);
}

/// False: the connection was lost meanwhile.
bool Connection::fail_overdue(milliseconds now)
{
    const unsigned losses = losses_;
    return in_flight_.each_overdue(now, [&](PendingCall& record) {
        owner_.call_timed_out(record.call->stands_for(), record.sent);
        record.release()->on_failure(Failure::timeout);
        return losses == losses_;
    });
}

bool Connection::anybody_waits() const noexcept
{
    return gathered_ != 0 || in_flight_.awaited();
}

}  // namespace ratelimit::redis
