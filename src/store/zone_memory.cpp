#include "store/zone_memory.h"

namespace ratelimit {

void ZoneMemory::prepare(ngx_shm_zone_t& zone) noexcept
{
    static char ours;
    zone.init = &ZoneMemory::set_up;
    zone.data = &ours;  // tells a reload, which hands it over, from a new zone
}

ngx_int_t ZoneMemory::set_up(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
    if (old_data != nullptr || zone->shm.exists) {
        return NGX_OK;
    }
    return begin(pool) ? NGX_OK : NGX_ERROR;
}

/// Of a pool in which nothing is allocated.
bool ZoneMemory::begin(ngx_slab_pool_t* pool) noexcept
{
    auto* shared = static_cast<Shared*>(ngx_slab_alloc_locked(pool, sizeof(Shared)));
    if (shared == nullptr) {
        return false;
    }
    shared->refused_keys.init();
    shared->local_limiter.init();
    pool->data = shared;
    pool->log_nomem = 0;  // full memory is no event: the oldest makes room
    ngx_memory_barrier();
    shared->in_hand = false;
    return true;
}

void ZoneMemory::lock(ngx_slab_pool_t* pool) noexcept
{
    ngx_shmtx_lock(&pool->mutex);
    auto* shared = static_cast<Shared*>(pool->data);
    if (shared->in_hand) {
        ngx_log_error(
            NGX_LOG_WARN, ngx_cycle->log, 0,
            "ratelimit: a worker died at work on a zone's memory, which begins anew");
        ngx_slab_init(pool);
        begin(pool);  // at the same place as ever
    }
    shared->in_hand = true;
    ngx_memory_barrier();
}

void ZoneMemory::unlock(ngx_slab_pool_t* pool) noexcept
{
    ngx_memory_barrier();
    static_cast<Shared*>(pool->data)->in_hand = false;
    ngx_shmtx_unlock(&pool->mutex);
}

bool ZoneMemory::make_room(SharedBlocks::Owner needs_it) const noexcept
{
    RefusedKeys refused = refused_keys();
    LocalLimiter counted = local_limiter();
    // A key whose counts fill all memory must not lose them to the line that tells of its refusal.
    if (needs_it == SharedBlocks::Owner::refused_keys && !counted.has_older()) {
        return refused.forget_oldest();
    }
    // What is for the log only may have a quarter; more while nobody else needs it.
    if (shared_->refused_keys.blocks > shared_->local_limiter.blocks / 3) {
        return refused.forget_oldest() || counted.forget_oldest();
    }
    return counted.forget_oldest() || refused.forget_oldest();
}

}  // namespace ratelimit
