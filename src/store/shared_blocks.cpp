#include "store/shared_blocks.h"

namespace ratelimit {

void* SharedBlocks::allocate() noexcept
{
    const Head& head = static_cast<Head&>(*static_cast<ZoneLock::Head*>(pool_->data));
    do {
        if (void* block = ngx_slab_alloc_locked(pool_, size)) {
            *used_ += 1;
            return block;
        }
    } while (head.make_room(pool_, owner_));
    return nullptr;
}

void SharedBlocks::free(void* block) noexcept
{
    ngx_slab_free_locked(pool_, block);
    *used_ -= 1;
}

}  // namespace ratelimit
