#pragma once

#include "base/entry_table.h"
#include "check/key_queue.h"

#include <cstdint>
#include <utility>

namespace ratelimit {

/// Sends the checks of one Redis client. While a check is in flight, later checks with the same
/// keys and policies in the same order wait for its end, and are then sent together as one script
/// call. So a hot key has one call in flight, however many requests it has, and its requests are
/// decided in the order of their arrival.
class Coalescer {
public:
    Coalescer(redis::Client& client, NodeTime node_time) : queues_{ client, node_time, {}, {} } {}
    Coalescer(const Coalescer&) = delete;
    Coalescer& operator=(const Coalescer&) = delete;

    redis::Client& client() noexcept { return queues_.client; }

    /// Sends the part, or keeps it for the next call. No part waits longer than connect_timeout +
    /// timeout, but in the lines of several keys with concurrency=. False: the part was not sent
    /// and has failed.
    bool send(ShardPart& part) noexcept;

    /// Whether no check is in flight.
    bool idle() const noexcept { return queues_.table.size() == 0; }

    /// How many parts had to wait for a call in flight, since the last call of this function.
    std::uint64_t take_waited() noexcept { return std::exchange(waited_, 0); }

private:
    bool send_or_wait(ShardPart& part) noexcept;

    KeyQueues queues_;
    std::uint64_t waited_ = 0;
};

}  // namespace ratelimit
