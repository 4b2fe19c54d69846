#include "redis/in_flight.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

bool InFlight::awaited() const noexcept
{
    const PendingCall* record = calls_.front();
    while (record != nullptr && !record->awaited()) {
        record = record->next;
    }
    return record != nullptr;
}

bool InFlight::wants_late_replies() const noexcept
{
    const PendingCall* record = calls_.front();
    while (record != nullptr && (record->call == nullptr || !record->timed_out)) {
        record = record->next;
    }
    return record != nullptr;
}

void InFlight::add(CallQueue& command) noexcept
{
    command.front()->command_size = static_cast<unsigned>(command.size());
    if (unsent_ == nullptr) {
        unsent_ = command.front();
    }
    while (!command.empty()) {
        PendingCall& record = command.pop();
        if (record.call != nullptr) {
            record.call->routing.written = true;
            record.longest_reply = record.call->longest_reply();
        }
        calls_.push(record);
    }
}

InFlight::Watch InFlight::mark_sent(milliseconds now, microseconds steady_now) noexcept
{
    Watch watch{ now + timeout_, false };
    for (PendingCall* record = std::exchange(unsent_, nullptr); record != nullptr;
         record = record->next) {
        record->sent = now;
        record->sent_precisely = steady_now;
        if (record->call != nullptr) {
            record->deadline = deadline_of(*record->call, now);
            watch.due = std::min(watch.due, record->deadline);
            watch.delays_exit = watch.delays_exit || record->call->delays_exit;
        }
    }
    return watch;
}

/// The call is not charged for the duration of the turn, which is long if the process was stopped.
/// If it has expired nevertheless, it lost its time to such a stop, and gets the whole timeout.
milliseconds InFlight::deadline_of(const Call& call, milliseconds now) const noexcept
{
    const milliseconds end = now + timeout_;
    const milliseconds expires = call.routing.expires + (now - turn_began_);
    return expires <= now ? end : std::min(end, expires);
}

InFlight::Command InFlight::take_oldest() noexcept
{
    Command oldest;
    oldest.sent = calls_.front()->sent_precisely;
    for (unsigned left = calls_.front()->command_size; left != 0; --left) {
        PendingCall& record = calls_.pop();
        oldest.in_time = oldest.in_time || !record.timed_out;
        oldest.calls.push(record);
    }
    return oldest;
}

CallQueue InFlight::take_all() noexcept
{
    unsent_ = nullptr;
    for (PendingCall* record = calls_.front(); record != nullptr; record = record->next) {
        record->keep_deadline();
    }
    return std::exchange(calls_, {});
}

milliseconds InFlight::silent_since() const noexcept
{
    return std::max(calls_.front()->sent, last_reply_);
}

InFlight::Watch InFlight::watch(milliseconds now) const noexcept
{
    Watch watch{ silent_at(), false };
    for (const PendingCall* record = calls_.front(); record != unsent_; record = record->next) {
        if (record->awaited()) {
            watch.delays_exit = watch.delays_exit || record->call->delays_exit;
            watch.due = std::min(watch.due, record->deadline);
        }
    }
    watch.due = std::max(watch.due, now + milliseconds{ 1 });
    return watch;
}

}  // namespace ratelimit::redis
