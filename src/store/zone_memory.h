#pragma once

#include "nginx/ngx.h"
#include "store/busiest_keys.h"
#include "store/denial_cache.h"
#include "store/local_limiter.h"
#include "store/refused_keys.h"
#include "store/token_leases.h"
#include "store/zone_counters.h"

namespace ratelimit {

/// The shared memory of one zone, with all that lives there. It survives a reload that leaves the
/// zone's size as it is.
///
/// Layout: the slab pool's data is one Shared, which has what each part has, and behind it the
/// counters of the busiest keys. All that the parts allocate are SharedBlocks. The pool's mutex is
/// the lock of it all.
class ZoneMemory {
public:
    /// Makes nginx set the zone's memory up. Its `data` is then ours.
    static void prepare(ngx_shm_zone_t& zone) noexcept;

    /// A worker that dies with the lock leaves what nobody can trust: the next begins anew.
    static void lock(ngx_slab_pool_t* pool) noexcept;
    static void unlock(ngx_slab_pool_t* pool) noexcept;

    /// In a worker, after nginx has set the zone up.
    explicit ZoneMemory(ngx_shm_zone_t& zone) noexcept
        : ZoneMemory(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr))
    {
    }
    explicit ZoneMemory(ngx_slab_pool_t* pool) noexcept
        : pool_(pool), shared_(static_cast<Shared*>(pool->data))
    {
    }

    RefusedKeys refused_keys() const noexcept { return { pool_, shared_->refused_keys }; }
    DenialCache denials() const noexcept { return { pool_, shared_->denials }; }
    TokenLeases leases() const noexcept { return { pool_, shared_->leases }; }
    LocalLimiter local_limiter() const noexcept { return { pool_, shared_->local_limiter }; }
    ZoneCounters counters() const noexcept { return ZoneCounters(shared_->counters); }
    BusiestKeys busiest_keys() const noexcept { return { pool_, shared_->busiest_keys }; }

    /// How many keys are counted, leased or known to be refused here; and how many had to go since
    /// memory was full. Neither has what is only for the log.
    std::uint64_t keys() const noexcept;
    std::uint64_t evictions() const noexcept { return shared_->evictions; }

    /// Forgets all that is known of a key, under any policy.
    void forget_key(std::string_view key) const noexcept;

    /// Frees at least one block, of what was used least recently. False: there is nothing that may
    /// go. The caller has the lock.
    bool make_room(SharedBlocks::Owner needs_it) const noexcept;

private:
    struct Shared {
        RefusedKeys::Shared refused_keys;
        DenialCache::Shared denials;
        TokenLeases::Shared leases;
        LocalLimiter::Shared local_limiter;
        ZoneCounters::Shared counters;
        ngx_atomic_t evictions;
        bool in_hand;                      // the lock's owner is at work
        BusiestKeys::Shared busiest_keys;  // last: its counters follow
    };

    static ngx_int_t set_up(ngx_shm_zone_t* zone, void* old_data) noexcept;
    static Shared* begin(ngx_slab_pool_t* pool) noexcept;
    bool forget_oldest(SharedBlocks::Owner owner) const noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit
