#pragma once

#include "nginx/ngx.h"
#include "store/local_limiter.h"
#include "store/refused_keys.h"

namespace ratelimit {

/// The shared memory of one zone, with all that lives there. It survives a reload that leaves the
/// zone's size as it is.
///
/// Layout: the slab pool's data is one Shared: what each part has, all under the pool's mutex.
class ZoneMemory {
public:
    /// Makes nginx set the zone's memory up. Its `data` is then ours.
    static void prepare(ngx_shm_zone_t& zone) noexcept;

    /// In a worker, after nginx has set the zone up.
    explicit ZoneMemory(ngx_shm_zone_t& zone) noexcept
        : pool_(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr)),
          shared_(static_cast<Shared*>(pool_->data))
    {
    }

    RefusedKeys refused_keys() const noexcept { return { pool_, shared_->refused_keys }; }
    LocalLimiter local_limiter() const noexcept { return { pool_, shared_->local_limiter }; }

private:
    struct Shared {
        RefusedKeys::Shared refused_keys;
        LocalLimiter::Shared local_limiter;
    };

    static ngx_int_t set_up(ngx_shm_zone_t* zone, void* old_data) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
};

}  // namespace ratelimit
