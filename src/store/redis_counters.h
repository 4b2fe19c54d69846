#pragma once

#include "nginx/ngx.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit {

/// Counters of the Redis servers, summed over all workers of this node, in shared memory of their
/// own that survives a reload.
///
/// Layout: the slab pool's data is one Shared, an array of Slots, under the pool's mutex. If a
/// worker dies holding the mutex, counts may be slightly wrong; there is no other effect. If all
/// slots are in use, further servers are not counted.
class RedisCounters {
public:
    using seconds = std::chrono::seconds;  // of a monotonic clock that all workers share

    static constexpr std::size_t memory_size = std::size_t{ 1024 } * 1024;
    static constexpr std::size_t latency_buckets = 23;
    static constexpr std::size_t error_kinds = 3;  // the caller defines what they mean
    static constexpr std::size_t most_workers = 512;

    using Latencies = std::array<std::uint64_t, latency_buckets>;
    struct Counts {
        Latencies latencies{};       // number of replies in each bucket of latency
        std::uint64_t total_us = 0;  // sum of their latencies
        std::uint64_t calls = 0;
        std::array<std::uint64_t, error_kinds> errors{};
        std::uint64_t reconnects = 0;
    };

    /// The counts of a block that are of no single server.
    struct BlockCounts {
        std::uint64_t coalesced = 0;  // checks (Coalescer::take_waited)
        std::uint64_t failed = 0;     // refunds and charges (Client::take_failed)
    };

    /// The state of a server as a worker sees it.
    struct Sight {
        bool up;
        bool breaker_open;
    };

    struct Server {
        std::string name;
        Counts counts;
        Latencies recent;  // of this minute and the previous one
        unsigned workers_up = 0;
        unsigned breakers_open = 0;

        /// "up", "breaker_open" or "away": the best that a worker sees.
        std::string_view state() const noexcept
        {
            return workers_up > 0 ? "up" : breakers_open > 0 ? "breaker_open" : "away";
        }
    };

    /// The callback by which nginx initialises the memory. `old_data`: null, or the data of the
    /// zone whose memory a reload keeps.
    static ngx_int_t init(ngx_shm_zone_t* zone, void* old_data) noexcept;

    explicit RedisCounters(ngx_shm_zone_t& zone) noexcept
        : pool_(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr))
    {
    }

    /// Adds a worker's counts. `worker`: its number; `counts`: since its last report; `sight`: null
    /// if the worker is about to exit.
    void add(
        std::string_view redis, std::string_view server, const Counts& counts, const Sight* sight,
        unsigned worker, seconds now) noexcept;

    /// Adds a worker's counts of a block.
    void add(std::string_view redis, const BlockCounts& counts, seconds now) noexcept;
    BlockCounts block(std::string_view redis) const noexcept;

    /// The servers of a block that a worker has reported in the last 5 seconds, sorted by name.
    /// `workers`: the number of workers.
    std::vector<Server> servers(std::string_view redis, unsigned workers, seconds now) const;

private:
    struct Slot;
    struct Shared;

    Shared& shared() const noexcept;
    Slot* find(std::string_view redis, std::string_view server) const noexcept;
    Slot* find_or_add(std::string_view redis, std::string_view server, seconds now) noexcept;

    ngx_slab_pool_t* pool_;
};

}  // namespace ratelimit
