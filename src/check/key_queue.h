#pragma once

#include "base/entry_table.h"
#include "check/check_message.h"

#include <cstddef>
#include <memory>

namespace ratelimit {

/// The requests with the same keys and policies. One message decides some of them; those that
/// arrive meanwhile wait for the next. The queue lasts as long as there is a message.
///
/// A message with a concurrency limit is one of that key's Holding. It waits while the holding has
/// a statement in flight that it cannot join. It is not sent again unchanged: the units have
/// changed then.
class KeyQueue final : private CheckMessage::Queue, private Holding::Waiter {
public:
    /// It is in this table, and removes itself.
    KeyQueue(
        redis::Client& client, const NodeTime& node_time, EntryTable<KeyQueue>& queues) noexcept
        : client_(client), node_time_(node_time), queues_(queues)
    {
    }
    ~KeyQueue();

    /// Sends the first request. Its keys and policies are those that matches() requires of others.
    /// False: it was not sent, and the queue is removed.
    bool begin(ShardPart& first) noexcept;
    bool matches(const ShardPart& part) const noexcept { return message_->matches(part); }
    /// Adds a request that matches to the next message.
    void wait(ShardPart& part) noexcept { waiting_.push_back(part); }

    // Of the EntryTable.
    KeyQueue* next = nullptr;
    std::size_t hash = 0;

private:
    unsigned overdue() const noexcept override;
    void message_ended(bool timed_out, PartList& again, PartList& ended) noexcept override;
    void proceed(bool timed_out) noexcept override;

    void send_next(bool timed_out, PartList& ended) noexcept;
    bool send_or_wait(bool after_timeout);
    redis::milliseconds own_deadline(const ShardPart& part) const noexcept;
    bool overdue(const ShardPart& part) const noexcept;
    void watch_own_deadlines() noexcept;
    void fail_overdue() noexcept;

    redis::Client& client_;
    const NodeTime node_time_;
    EntryTable<KeyQueue>& queues_;
    MessageRef message_;  // in flight, or waits for its holdings; null: none was made yet
    PartList waiting_;
    std::unique_ptr<Timer> own_deadlines_;  // null until it is needed
};

}  // namespace ratelimit
