#pragma once

#include "nginx/ngx.h"
#include "store/zone_lock.h"

#include <cstddef>

namespace ratelimit {

/// Allocates a zone's memory in blocks of one size, so that a block freed by one entry fits any
/// other. The caller must hold the zone's lock.
class SharedBlocks {
public:
    static constexpr std::size_t size = 128;  // bytes; one of the slab allocator's sizes

    /// `used`: counts the owner's blocks; in shared memory.
    SharedBlocks(ngx_slab_pool_t* pool, ngx_uint_t& used) noexcept : pool_(pool), used_(&used) {}

    ngx_slab_pool_t* pool() const noexcept { return pool_; }

    /// Evicts entries if there is no free block. Null: nothing could be evicted.
    void* allocate() noexcept;
    void free(void* block) noexcept;

private:
    ngx_slab_pool_t* pool_;
    ngx_uint_t* used_;
};

}  // namespace ratelimit
