#pragma once

#include "store/zone_lock.h"

#include <cstdint>

namespace ratelimit {

/// How many units of a concurrency limit the requests of this node hold now. Each worker has a slot
/// with its number, so what a killed worker held is not counted any longer: its process does not
/// exist.
///
/// Layout: the slots are allocated for the first unit, so that other zones do without them. If
/// there is no memory for them, the number is 0.
class HeldUnitsCount {
public:
    struct Slots;
    struct Shared {
        Slots* slots;
        void init() noexcept { slots = nullptr; }
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
