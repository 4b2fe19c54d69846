#pragma once

#include "store/zone_memory.h"

namespace ratelimit {

/// Has the lock of a zone's memory.
class SlabLock {
public:
    explicit SlabLock(ngx_slab_pool_t* pool) noexcept : pool_(pool) { ZoneMemory::lock(pool_); }
    ~SlabLock() { ZoneMemory::unlock(pool_); }
    SlabLock(const SlabLock&) = delete;
    SlabLock& operator=(const SlabLock&) = delete;

private:
    ngx_slab_pool_t* pool_;
};

}  // namespace ratelimit
