#pragma once

#include "nginx/ngx.h"

namespace ratelimit {

/// Holds the lock of a zone's memory, which is the mutex of its slab pool.
///
/// If a worker died holding the lock, the data may be inconsistent. nginx's master then releases
/// the mutex; the next holder sees that Head::held is set, and reinitialises the zone.
class ZoneLock {
public:
    /// The start of a zone's shared memory; the slab pool's `data` points to it.
    struct Head {
        /// Reinitialises the pool and everything in it, including this head. Called with the mutex
        /// held. A function has the same address in all processes that share the memory, because
        /// they are forks of one master.
        void (*reset)(ngx_slab_pool_t* pool) noexcept;
        /// Evicts an entry of any owner, because the one whose blocks are counted in `needs_it`
        /// needs a block. False: there is no entry that may be evicted.
        bool (*make_room)(ngx_slab_pool_t* pool, const ngx_uint_t& needs_it) noexcept;
        bool held;  // a process holds the lock, or died holding it
    };

    explicit ZoneLock(ngx_slab_pool_t* pool) noexcept : pool_(pool) { lock(pool_); }
    ~ZoneLock() { unlock(pool_); }
    ZoneLock(const ZoneLock&) = delete;
    ZoneLock& operator=(const ZoneLock&) = delete;

    static void lock(ngx_slab_pool_t* pool) noexcept;
    static void unlock(ngx_slab_pool_t* pool) noexcept;

private:
    ngx_slab_pool_t* pool_;
};

}  // namespace ratelimit
