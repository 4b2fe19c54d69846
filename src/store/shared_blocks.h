#pragma once

#include "nginx/ngx.h"

namespace ratelimit {

/// A zone's memory in blocks of one size, so that what one entry frees has room for any other. When
/// there are none left, ZoneMemory::make_room frees some. The caller has the zone's lock.
class SharedBlocks {
public:
    static constexpr std::size_t size = 128;  // bytes; one that the slab allocator has

    /// `used`: how many blocks the owner has, in shared memory.
    SharedBlocks(ngx_slab_pool_t* pool, ngx_uint_t& used) noexcept : pool_(pool), used_(&used) {}

    /// Null: there is nothing left to make room.
    void* allocate() noexcept;
    void free(void* block) noexcept;

private:
    ngx_slab_pool_t* pool_;
    ngx_uint_t* used_;
};

}  // namespace ratelimit
