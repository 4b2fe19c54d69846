#include "store/shared_blocks.h"

#include "store/zone_memory.h"

namespace ratelimit {

void* SharedBlocks::allocate() noexcept
{
    do {
        if (void* block = ngx_slab_alloc_locked(pool_, size)) {
            *used_ += 1;
            return block;
        }
    } while (ZoneMemory(pool_).make_room(owner_));
    return nullptr;
}

void SharedBlocks::free(void* block) noexcept
{
    ngx_slab_free_locked(pool_, block);
    *used_ -= 1;
}

}  // namespace ratelimit
