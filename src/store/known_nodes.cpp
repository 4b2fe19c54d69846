#include "store/known_nodes.h"

#include <algorithm>

namespace ratelimit {

void KnownNodes::prepare(ngx_shm_zone_t& zone) noexcept
{
    static char ours;
    zone.init = &KnownNodes::init;
    zone.data = &ours;  // `init` gets it as old_data if a reload keeps the memory
}

ngx_int_t KnownNodes::init(ngx_shm_zone_t* zone, void* old_data) noexcept
{
    auto* pool = reinterpret_cast<ngx_slab_pool_t*>(zone->shm.addr);
    if (old_data != nullptr || zone->shm.exists) {
        return NGX_OK;
    }
    auto* shared = static_cast<Shared*>(ngx_slab_alloc(pool, sizeof(Shared) + room));
    if (shared == nullptr) {
        return NGX_ERROR;
    }
    shared->length = 0;
    pool->data = shared;
    return NGX_OK;
}

void KnownNodes::set(std::string_view text) const noexcept
{
    if (ngx_shmtx_trylock(&pool_->mutex) == 0) {
        return;
    }
    shared().length = 0;
    ngx_memory_barrier();
    if (text.size() <= room) {
        text.copy(bytes(), text.size());
        ngx_memory_barrier();
        shared().length = text.size();
    }
    ngx_shmtx_unlock(&pool_->mutex);
}

std::string KnownNodes::get() const
{
    std::string text(room, '\0');  // an allocation may throw, so it is made without the lock
    if (ngx_shmtx_trylock(&pool_->mutex) == 0) {
        return {};
    }
    const std::size_t length = std::min(shared().length, room);
    std::copy_n(bytes(), length, text.data());
    ngx_shmtx_unlock(&pool_->mutex);
    text.resize(length);
    return text;
}

}  // namespace ratelimit
