#include "store/zone_memory.h"

#include <algorithm>
#include <array>

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
    Shared* shared = begin(pool);
    if (shared == nullptr) {
        return NGX_ERROR;
    }
    shared->counters.init();
    shared->evictions = 0;
    return NGX_OK;
}

/// Of a pool in which nothing is allocated. All but the counts, which need no lock.
ZoneMemory::Shared* ZoneMemory::begin(ngx_slab_pool_t* pool) noexcept
{
    // More than half a page is whole pages, whose rest is for the busiest keys.
    const std::size_t page = ngx_pagesize;
    const std::size_t spare = (page - sizeof(Shared) % page) % page;
    const auto zone = static_cast<std::size_t>(pool->end - reinterpret_cast<u_char*>(pool));
    const std::size_t counters = BusiestKeys::capacity_for(zone, spare);
    auto* shared = static_cast<Shared*>(
        ngx_slab_alloc_locked(pool, sizeof(Shared) + counters * BusiestKeys::counter_size));
    if (shared == nullptr) {
        return nullptr;
    }
    shared->refused_keys.init();
    shared->denials.init();
    shared->leases.init();
    shared->local_limiter.init();
    shared->busiest_keys.init(counters);
    pool->data = shared;
    pool->log_nomem = 0;  // full memory is no event: the oldest makes room
    ngx_memory_barrier();
    shared->in_hand = false;
    return shared;
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
        begin(pool);  // at the same place as ever, so that the counts go on
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

bool ZoneMemory::forget_oldest(SharedBlocks::Owner owner) const noexcept
{
    switch (owner) {
    case SharedBlocks::Owner::refused_keys:
        return refused_keys().forget_oldest();
    case SharedBlocks::Owner::denials:
        return denials().forget_oldest();
    case SharedBlocks::Owner::leases:
        return leases().forget_oldest();
    default:
        return local_limiter().forget_oldest();
    }
}

bool ZoneMemory::make_room(SharedBlocks::Owner needs_it) const noexcept
{
    using Owner = SharedBlocks::Owner;
    struct Share {
        Owner owner;
        ngx_uint_t weighted;  // blocks, three times for what Redis knows as well or is for the log
    };
    std::array<Share, 4> shares = {
        Share{ Owner::refused_keys, 3 * shared_->refused_keys.blocks },
        Share{ Owner::denials, 3 * shared_->denials.blocks },
        Share{ Owner::leases, 3 * shared_->leases.blocks },
        Share{ Owner::local_limiter, shared_->local_limiter.blocks },
    };
    // A key whose counts fill all memory must not lose them to what is known of its refusal.
    if (needs_it != Owner::local_limiter && !local_limiter().has_older()) {
        shares.back().weighted = 0;
    }
    std::sort(shares.begin(), shares.end(), [](const Share& left, const Share& right) {
        return left.weighted > right.weighted;
    });
    for (const Share& share : shares) {
        if (share.weighted > 0 && forget_oldest(share.owner)) {
            // What is only for the log is no loss that more memory would spare.
            shared_->evictions = shared_->evictions + (share.owner == Owner::refused_keys ? 0 : 1);
            return true;
        }
    }
    return false;
}

std::uint64_t ZoneMemory::keys() const noexcept
{
    return shared_->denials.tree.size() + shared_->leases.tree.size()
        + shared_->local_limiter.tree.size();
}

void ZoneMemory::forget_key(std::string_view key) const noexcept
{
    denials().forget_key(key);
    leases().forget_key(key);
    local_limiter().forget_key(pool_, key);
    busiest_keys().forget(key);
}

}  // namespace ratelimit
