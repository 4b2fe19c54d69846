#pragma once

#include "nginx/ngx.h"

namespace ratelimit {

/// Has a slab pool's mutex.
class SlabLock {
public:
    explicit SlabLock(ngx_slab_pool_t* pool) noexcept : pool_(pool)
    {
        ngx_shmtx_lock(&pool_->mutex);
    }
    ~SlabLock() { ngx_shmtx_unlock(&pool_->mutex); }
    SlabLock(const SlabLock&) = delete;
    SlabLock& operator=(const SlabLock&) = delete;

private:
    ngx_slab_pool_t* pool_;
};

}  // namespace ratelimit
