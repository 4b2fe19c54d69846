#pragma once

#include "base/entry_table.h"
#include "check/coalesced_call.h"

#include <cstdint>
#include <utility>

namespace ratelimit {

/// Sends the checks of one Redis client. While a check is in flight, later checks with the same
/// keys and policies in the same order wait for its end, and are then sent together as one script
/// call. So a hot key has one call in flight, however many requests it has, and its requests are
/// decided in the order of their arrival.
class Coalescer {
public:
    Coalescer(redis::Client& client, NodeTime node_time);
    ~Coalescer();
    Coalescer(const Coalescer&) = delete;
    Coalescer& operator=(const Coalescer&) = delete;

    redis::Client& client() noexcept { return client_; }

    /// Sends the part, or keeps it for the next call. No part waits longer than connect_timeout +
    /// timeout. False: the part was not sent and has failed.
    bool send(ShardPart& part) noexcept;

    /// Whether no check is in flight.
    bool idle() const noexcept { return calls_.size() == 0; }

    /// How many parts had to wait for a call in flight, since the last call of this function.
    std::uint64_t take_waited() noexcept { return std::exchange(waited_, 0); }

private:
    /// A call: in its bucket, or in the list of unused ones.
    struct Entry final : CoalescedCall {
        explicit Entry(Coalescer& coalescer) noexcept
            : CoalescedCall(coalescer.client_, coalescer.node_time_), owner(coalescer)
        {
        }
        void on_unused() noexcept override { owner.remove(*this); }

        Coalescer& owner;
        Entry* next = nullptr;
        std::size_t hash = 0;
    };

    bool send_or_wait(ShardPart& part);
    void remove(Entry& entry) noexcept
    {
        entry.leave_holdings();
        calls_.remove(entry);
    }

    redis::Client& client_;
    const NodeTime node_time_;
    EntryTable<Entry> calls_;
    std::uint64_t waited_ = 0;
};

}  // namespace ratelimit
