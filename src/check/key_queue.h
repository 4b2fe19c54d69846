#pragma once

#include "base/entry_table.h"
#include "check/check_message.h"

#include <cstddef>
#include <memory>

namespace ratelimit {

struct KeyQueues;

/// The requests with the same keys and policies. One message decides some of them; those that
/// arrive meanwhile wait for the next. The queue lasts as long as there is a message.
///
/// A message with a concurrency limit is one of that key's Holding. It waits while the holding has
/// a statement in flight that it cannot join. It is not sent again unchanged: the units have
/// changed then.
///
/// A message with several such limits needs all of its keys at one time. It waits in the line of
/// the first one that is busy. If it is asked there and another key is busy, it goes to the end of
/// the lines of all its keys, at once. So the messages that did this are in the same order in each
/// line: the first of them is sent when the statements in flight have ended, and none waits for
/// ever. (Locks that are granted all together, in the order of the requests for them.)
class KeyQueue final : private CheckMessage::Queue, public Link<KeyQueue> {
public:
    /// It is one of these, and removes itself.
    explicit KeyQueue(KeyQueues& all) noexcept : all_(all) {}
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
    void asked(bool timed_out) noexcept override;

    void proceed(bool timed_out) noexcept;
    void drop_message() noexcept;
    void send_next(bool timed_out, PartList& ended) noexcept;
    bool send_or_wait(bool after_timeout);
    redis::milliseconds own_deadline(const ShardPart& part) const noexcept;
    bool overdue(const ShardPart& part) const noexcept;
    void watch_own_deadlines() noexcept;
    void fail_overdue() noexcept;

    KeyQueues& all_;
    MessageRef message_;  // in flight, or in the lines of its keys; null: neither
    PartList waiting_;
    std::unique_ptr<Timer> own_deadlines_;  // null until it is needed
};

/// The queues of one client.
struct KeyQueues {
    redis::Client& client;
    const NodeTime node_time;
    EntryTable<KeyQueue> table;
    List<KeyQueue> asked;  // whose messages may be ready
    bool asking = false;   // until there is none
};

}  // namespace ratelimit
