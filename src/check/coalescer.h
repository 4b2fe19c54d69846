#pragma once

#include "base/entry_table.h"
#include "check/check_message.h"
#include "redis/alarm.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace ratelimit {

class Coalescer;

/// The requests with the same keys and policies. One message decides some of them; those that
/// arrive meanwhile wait for the next. The queue lasts as long as there is a message.
///
/// A message with a concurrency limit is one of that key's Holding. It waits while the holding has
/// a statement in flight that it cannot join. It is not sent again unchanged: the units have
/// changed then.
///
/// A message with several such limits needs all of its keys at one time. It waits for the first one
/// that is busy, and then for the next. Other requests could keep one of them busy for ever. So if
/// half of its time is over, all its keys are kept for it until it is sent. Only one message of the
/// client has its keys kept at a time, since two could keep keys from each other: the one that has
/// waited longest.
class KeyQueue final : private CheckMessage::Queue, private Holding::Waiter, public Link<KeyQueue> {
public:
    /// It is one of its queues, and removes itself.
    explicit KeyQueue(Coalescer& all) noexcept : all_(all) {}
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

    /// When the keys of the message, which waits for them, are to be kept for it.
    redis::milliseconds keeps_from() const noexcept { return keeps_from_; }
    void keep_keys() noexcept
    {
        message_->each_holding([this](Holding& holding) { holding.keep_for(*this); });
    }

private:
    unsigned overdue() const noexcept override;
    void message_ended(bool timed_out, PartList& again, PartList& ended) noexcept override;
    void proceed() noexcept override;

    void let_keys_go() noexcept;
    void drop_message() noexcept;
    void send_next(PartList& ended) noexcept;
    bool send_or_wait();
    bool has_expired(const ShardPart& part) const noexcept;
    void watch_deadlines(const PartList& requests) noexcept;
    void fail_overdue() noexcept;

    Coalescer& all_;
    MessageRef message_;  // in flight, or waits for its keys; null: neither
    PartList waiting_;
    // How long each of its requests may wait in all, after a timeout or for keys. 0: only the
    // message has a deadline.
    redis::milliseconds patience_{ 0 };
    redis::milliseconds keeps_from_{ 0 };
    std::unique_ptr<Timer> deadlines_;  // null until it is needed
};

/// Sends the checks of one Redis client. While a check is in flight, later checks with the same
/// keys and policies in the same order wait for its end, and are then sent together as one script
/// call. So a hot key has one call in flight, however many requests it has, and its requests are
/// decided in the order of their arrival.
class Coalescer {
public:
    Coalescer(redis::Client& client, NodeTime node_time);
    Coalescer(const Coalescer&) = delete;
    Coalescer& operator=(const Coalescer&) = delete;

    redis::Client& client() noexcept { return client_; }

    /// Sends the part, or keeps it for the next call. No part waits longer than connect_timeout +
    /// timeout. False: the part was not sent and has failed.
    bool send(ShardPart& part) noexcept;

    /// Whether no check is in flight.
    bool idle() const noexcept { return queues_.size() == 0; }

    /// How many parts had to wait for a call in flight, since the last call of this function.
    std::uint64_t take_waited() noexcept { return std::exchange(waited_, 0); }

private:
    friend KeyQueue;

    bool send_or_wait(ShardPart& part) noexcept;
    void keep_next(redis::milliseconds due) noexcept;
    void keep_first() noexcept;

    redis::Client& client_;
    const NodeTime node_time_;
    List<KeyQueue> in_line_;      // those that wait for several keys
    KeyQueue* keeper_ = nullptr;  // the one of them whose keys are kept; null: none
    redis::Alarm keeps_;
    EntryTable<KeyQueue> queues_;
    std::uint64_t waited_ = 0;
};

}  // namespace ratelimit
