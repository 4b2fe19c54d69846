// The part of Connection that writes calls together: those of one script and one turn of the loop
// share a command and its reply, which costs both sides less than one for each.

#include "redis/connection.h"
#include "redis/connection_hooks.h"

#include <utility>

namespace ratelimit::redis {

void Connection::gather(PendingCall& record) noexcept
{
    CallQueue& queue = together_[static_cast<std::size_t>(record.call->script())];
    if (record.asking) {
        write_joint(queue);  // it goes alone
    }
    queue.push(record);
    ++gathered_;
    if (record.asking || one_by_one_ || queue.size() >= options_.most_joint) {
        write_joint(queue);
    }
}

/// False: out of memory; they are still there.
bool Connection::write_joint(CallQueue& queue) noexcept
{
    CallQueue wanted;
    gathered_ -= queue.size();
    while (!queue.empty()) {
        PendingCall& record = queue.pop();
        if (record.call != nullptr) {
            wanted.push(record);
        } else {
            records_.give_back(record);
        }
    }
    if (wanted.empty()) {
        return true;
    }
    if (!format_joint(wanted)) {
        gathered_ += wanted.size();
        queue = wanted;
        return false;
    }
    put_in_flight(wanted);
    return true;
}

/// False: out of memory.
bool Connection::format_joint(const CallQueue& queue) noexcept
try {
    const Call& first = *queue.front()->call;
    if (queue.front()->asking && !write_asking()) {
        return false;
    }
    arguments_.begin(handshake_.digest(first.script()), { queue.size(), 1 });
    for (const PendingCall* record = queue.front(); record != nullptr; record = record->next) {
        arguments_.key(record->call->routing_key());
    }
    arguments_.begin_packed(queue.size() * first.joint()->numbers);
    for (const PendingCall* record = queue.front(); record != nullptr; record = record->next) {
        record->call->write_numbers(arguments_);
    }
    arguments_.end_packed();
    return write(arguments_.text());
} catch (const std::exception&) {
    return false;
}

void Connection::write_gathered() noexcept
{
    for (CallQueue& queue : together_) {
        if (!queue.empty() && !write_joint(queue)) {
            gathered_ -= queue.size();
            CallQueue failed = std::exchange(queue, {});
            fail_all(failed, records_, Failure::connection);
        }
    }
}

/// What is on its way, and what waits for the end of the turn.
CallQueue Connection::take_all_calls() noexcept
{
    CallQueue all = in_flight_.take_all();
    for (CallQueue& queue : together_) {
        while (!queue.empty()) {
            all.push(queue.pop());
        }
    }
    gathered_ = 0;
    return all;
}

}  // namespace ratelimit::redis
