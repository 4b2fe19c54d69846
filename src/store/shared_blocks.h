#pragma once

#include "nginx/ngx.h"

#include <cstddef>
#include <cstdint>

namespace ratelimit {

/// A zone's memory in blocks of one size, so that what one entry frees has room for any other. When
/// there are none left, ZoneMemory::make_room frees some. The caller has the zone's lock.
class SharedBlocks {
public:
    static constexpr std::size_t size = 128;  // bytes; one that the slab allocator has

    enum class Owner : std::uint8_t { refused_keys, denials, leases, local_limiter };

    /// `used`: how many blocks the owner has, in shared memory.
    SharedBlocks(ngx_slab_pool_t* pool, Owner owner, ngx_uint_t& used) noexcept
        : pool_(pool), owner_(owner), used_(&used)
    {
    }

    /// Null: there is nothing left to make room.
    void* allocate() noexcept;
    void free(void* block) noexcept;

private:
    ngx_slab_pool_t* pool_;
    Owner owner_;
    ngx_uint_t* used_;
};

}  // namespace ratelimit
