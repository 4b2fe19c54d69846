#pragma once

#include "nginx/ngx.h"

namespace ratelimit {

/// Holds the lock of a zone's memory, which is the mutex of its slab pool.
///
/// If a worker died holding the lock, the data may be inconsistent. nginx's master then releases
/// the mutex; the next holder sees that Head::held is set, and reinitialises the zone.
class ZoneLock {
public:
    /// The first part of a zone's shared memory, which is the slab pool's data.
    struct Head {
        /// Reinitialises the pool and what is in it, this head too; the mutex is held. The address
        /// is valid in each process that has the memory, as is that of an rbtree's insert function.
        void (*reset)(ngx_slab_pool_t* pool) noexcept;
        bool held;
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
