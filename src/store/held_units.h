#pragma once

#include "store/zone_lock.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ratelimit {

/// How many units of a concurrency limit the requests of this node hold now. Each process has
/// the slot of its ngx_process_slot, so what a killed worker held is not counted any longer: its
/// process does not exist.
///
/// Layout: groups of slots, each allocated when one of its processes first sets a number, so that
/// other zones, and nodes with few processes, do without them. If there is no memory for a group,
/// its processes are not counted.
class HeldUnitsCount {
public:
    static constexpr std::size_t group_size = 64;
    static constexpr std::size_t most_processes = NGX_MAX_PROCESSES;

    struct Slots;
    struct Shared {
        std::array<Slots*, (most_processes + group_size - 1) / group_size> groups;
        void init() noexcept { groups.fill(nullptr); }
    };

    HeldUnitsCount(ngx_slab_pool_t* pool, Shared& shared) noexcept : pool_(pool), shared_(&shared)
    {
    }

    /// Of this process. Takes the zone's lock.
    void set(std::int64_t units) const noexcept;
    /// Of all processes. Takes the zone's lock.
    std::uint64_t sum() const noexcept;

private:
    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit
