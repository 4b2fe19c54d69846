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
    auto* shared = static_cast<Shared*>(ngx_slab_calloc(pool, sizeof(Shared)));
    if (shared == nullptr) {
        return NGX_ERROR;
    }
    shared->refused_keys.init();
    shared->local_limiter.init();
    pool->data = shared;
    pool->log_nomem = 0;  // full memory is no event: the oldest makes room
    return NGX_OK;
}

}  // namespace ratelimit
