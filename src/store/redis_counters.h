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

/// What all workers of this node have seen of the Redis servers they ask, in a shared memory of its
/// own, which survives a reload.
///
/// Layout: the slab pool's data is one Shared, an array of Slots; all under the pool's mutex. A
/// worker that dies with it leaves counts that are a little off, and nothing worse. When all slots
/// are in use, further servers are not counted.
class RedisCounters {
public:
    using seconds = std::chrono::seconds;  // of a clock that only goes on, for all workers the same

    static constexpr std::size_t memory_size = std::size_t{ 1024 } * 1024;
    static constexpr std::size_t latency_buckets = 23;
    static constexpr std::size_t error_kinds = 3;  // what they are is the caller's
    static constexpr std::size_t most_workers = 512;

    using Latencies = std::array<std::uint64_t, latency_buckets>;
    struct Counts {
        Latencies latencies{};       // replies by how long they took
        std::uint64_t total_us = 0;  // of those
        std::uint64_t calls = 0;
        std::array<std::uint64_t, error_kinds> errors{};
        std::uint64_t reconnects = 0;
    };

    /// What a worker thinks of a server.
    struct Sight {
        bool up;
        bool breaker_open;
    };

    struct Server {
        std::string name;
        Counts counts;
        Latencies recent;  // in this minute and the one before
        unsigned workers_up = 0;
        unsigned breakers_open = 0;
    };

    /// Makes nginx set the memory up. Its `data` is then ours.
    static void prepare(ngx_shm_zone_t& zone) noexcept;

    explicit RedisCounters(ngx_shm_zone_t& zone) noexcept
        : pool_(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr))
    {
    }

    /// `worker`: its number; `counts`: since it last told. A worker that is about to exit has no
    /// opinion: then `sight` is null.
    void add(
        std::string_view redis, std::string_view server, const Counts& counts, const Sight* sight,
        unsigned worker, seconds now) noexcept;

    /// Checks that went together with others of the same keys.
    void add_coalesced(std::string_view redis, std::uint64_t checks, seconds now) noexcept;
    std::uint64_t coalesced(std::string_view redis) const noexcept;

    /// Those of a block that a worker has told of in the last seconds, by name. `workers`: so many
    /// there are.
    std::vector<Server> servers(std::string_view redis, unsigned workers, seconds now) const;

private:
    struct Slot;
    struct Shared;

    static ngx_int_t set_up(ngx_shm_zone_t* zone, void* old_data) noexcept;
    Shared& shared() const noexcept;
    Slot* find(std::string_view redis, std::string_view server) const noexcept;
    Slot* find_or_add(std::string_view redis, std::string_view server, seconds now) noexcept;

    ngx_slab_pool_t* pool_;
};

}  // namespace ratelimit
