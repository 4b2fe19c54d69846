#pragma once

#include "nginx/clock.h"
#include "nginx/ngx.h"
#include "store/node_past.h"
#include "store/override_table.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace ratelimit {

/// What all workers of a node know of the fleet, in shared memory of its own that survives a
/// reload: the overrides, how far they are known, and which worker talks to Redis.
///
/// Layout: one Shared in all that the slab pool had, followed by the OverrideTable. Writers of the
/// table hold the pool's mutex (Lock). Atomic members are read and written without it.
///
/// The master process reads it at a reload, with more rights than the workers that write it. So no
/// address is taken from it: `zone.data`, which each process has in its own memory, is that of
/// Shared, and each holder of the lock has a mutex of its own, to the word in the pool.
class FleetMemory {
public:
    using microseconds = std::chrono::microseconds;

    static constexpr std::size_t smallest_size = std::size_t{ 256 } * 1024;
    static constexpr std::size_t id_length = 32;

    /// Replies with fewer nodes than `Shared::nodes`, one after another. Times are monotonic.
    struct Fewer {
        std::int64_t since_us = 0;  // the first of them; 0: there is none
        std::int64_t heard_us = 0;  // the last one
        std::uint32_t most = 0;     // nodes in one of them
    };

    struct alignas(64) Shared {          // as the table behind it
        std::atomic<bool> writing;       // a process writes the table, or died writing it
        std::array<char, id_length> id;  // of this node: random hexadecimal digits
        std::uint64_t cursor;            // all changes up to this version are known
        std::atomic<bool> in_full_read;  // all overrides are being loaded
        std::uint64_t unfit;             // overrides without room, in the last full read or since
        std::uint64_t unfit_in_read;     // of them, in that read
        OverrideTable::Digest missing;   // Redis's surplus after the last full read
        std::int64_t pass_ended_ms;      // monotonic
        std::atomic<std::uint64_t> wanted;   // identifies where in Redis the fleet is
        std::atomic<std::uint64_t> storage;  // the place in Redis that all this is from
        std::atomic<bool> loaded;            // overrides are known; also if Redis is away later
        std::atomic<bool> connected;         // the last call to Redis was answered
        std::atomic<std::int64_t> heard_us;  // monotonic time of the last answer; 0: none
        /// The same of the last answer to a call that reported this node.
        std::atomic<std::int64_t> reported_us;
        std::atomic<std::int64_t> offset_us;  // Redis's clock less the monotonic one
        std::atomic<std::uint32_t> page;      // how many changes a call asks for; 0: the most
        std::atomic<std::uint32_t> nodes;     // of the fleet that live; 0: not known
        Fewer fewer;
        std::atomic<std::uint64_t> left_out;  // overrides in Redis without room here
        std::atomic<bool> left_out_logged;
        std::atomic<std::int64_t> leader;       // pid of the worker that talks to Redis; 0: none
        std::atomic<std::int64_t> leads_until;  // monotonic, in ms
        std::int64_t started_us;                // monotonic: when the memory was made
        std::int64_t known_ms;            // monotonic: when all overrides were known last; 0: never
        std::int64_t list_began_ms;       // of the nodes in Redis, by its clock; 0: not known
        bool list_is_new;                 // since the overrides were known, it began again
        std::atomic<std::uint64_t> lost;  // overrides that Redis had lost, the last time
        std::atomic<std::int64_t> lost_ms;  // when that was seen, by Redis's clock; 0: never
        NodePast past;
    };

    /// Takes the lock of the table, but never waits for a worker that is stopped while it holds it:
    /// false, nothing may be written now. Repairs the table if its last writer was killed, and
    /// begins afresh if the fleet is in another place now.
    class Lock {
    public:
        explicit Lock(const FleetMemory& memory) noexcept;
        ~Lock();
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;

        explicit operator bool() const noexcept { return shared_ != nullptr; }

    private:
        ngx_shmtx_t mutex_{};
        Shared* shared_;
    };

    /// The callback by which nginx initialises the memory. `old_data`: null, or the data of the
    /// zone whose memory a reload keeps.
    static ngx_int_t init(ngx_shm_zone_t* zone, void* old_data) noexcept;

    /// Call after nginx has initialised the memory.
    explicit FleetMemory(ngx_shm_zone_t& zone) noexcept : zone_(&zone) {}

    Shared& shared() const noexcept { return *static_cast<Shared*>(zone_->data); }
    OverrideTable table() const noexcept;
    std::string_view id() const noexcept { return { shared().id.data(), id_length }; }

    /// Takes changes from `storage`, a place in Redis, from now on. Until all its overrides are
    /// known, those of the earlier place stay in force. Takes no lock.
    void follow(std::uint64_t storage) const noexcept { shared().wanted.store(storage); }
    bool follows(std::uint64_t storage) const noexcept { return shared().wanted.load() == storage; }
    /// Whether the overrides of the place that it follows are known.
    bool loaded() const noexcept
    {
        return follows(shared().storage.load()) && shared().loaded.load();
    }

    /// The time by Redis's clock.
    milliseconds redis_now() const noexcept
    {
        const microseconds offset{ shared().offset_us.load(std::memory_order_relaxed) };
        return std::chrono::duration_cast<milliseconds>(nginx::monotonic_time() + offset);
    }

    /// The number of live nodes last known, at least 1.
    std::int64_t nodes() const noexcept
    {
        const auto known = shared().nodes.load(std::memory_order_relaxed);
        return known == 0 ? 1 : known;
    }

    /// Whether this process is the one that talks to Redis; if there is none, or its time is over,
    /// it becomes that for `lease`. `now`: monotonic.
    bool lead(milliseconds now, milliseconds lease) const noexcept;
    /// Lets another worker talk to Redis at once.
    void stop_leading() const noexcept;

private:
    std::size_t table_size() const noexcept;
    void keep(const FleetMemory& before) const noexcept;

    ngx_shm_zone_t* zone_;
};

}  // namespace ratelimit
