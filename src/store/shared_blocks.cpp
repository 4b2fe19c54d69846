#include "store/shared_blocks.h"

namespace ratelimit {

void* SharedBlocks::allocate() noexcept
{
    void* block = ngx_slab_alloc_locked(pool_, size);
    while (block == nullptr) {
        if (!static_cast<const ZoneLock::Head*>(pool_->data)->make_room(pool_, *used_)) {
            return nullptr;
        }
        block = ngx_slab_alloc_locked(pool_, size);
    }
    *used_ += 1;
    return block;
}

void SharedBlocks::free(void* block) noexcept
{
    ngx_slab_free_locked(pool_, block);
    *used_ -= 1;
}

}  // namespace ratelimit
