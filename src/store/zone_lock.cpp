#include "store/zone_lock.h"

namespace ratelimit {

namespace {

ZoneLock::Head& head_of(ngx_slab_pool_t* pool) noexcept
{
    return *static_cast<ZoneLock::Head*>(pool->data);
}

}  // namespace

void ZoneLock::lock(ngx_slab_pool_t* pool) noexcept
{
    ngx_shmtx_lock(&pool->mutex);
    if (head_of(pool).held) {
        ngx_log_error(
            NGX_LOG_WARN, ngx_cycle->log, 0,
            "ratelimit: a worker died while it changed a zone's memory, the zone is reinitialised");
        head_of(pool).reset(pool);
    }
    head_of(pool).held = true;
    ngx_memory_barrier();
}

void ZoneLock::unlock(ngx_slab_pool_t* pool) noexcept
{
    ngx_memory_barrier();
    head_of(pool).held = false;
    ngx_shmtx_unlock(&pool->mutex);
}

}  // namespace ratelimit
