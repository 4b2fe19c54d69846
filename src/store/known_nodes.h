#pragma once

#include "nginx/ngx.h"

#include <string>
#include <string_view>

namespace ratelimit {

/// The last list of the fleet's nodes that any worker of this node got from Redis, in shared memory
/// of fixed size: when Redis is away, every worker can show it.
///
/// Layout: the slab pool's data is one Shared. Its mutex is the lock, for which no worker waits:
/// one that is stopped may hold it. A worker that was killed while it wrote leaves `length` at 0:
/// nothing is known then.
class KnownNodes {
public:
    static constexpr std::size_t memory_size = std::size_t{ 1024 } * 1024;
    static constexpr std::size_t room = std::size_t{ 960 } * 1024;  // bytes of a text

    /// Sets the callback by which nginx initialises the memory, and `zone.data`, which the callback
    /// uses.
    static void prepare(ngx_shm_zone_t& zone) noexcept;

    /// Call after nginx has initialised the memory.
    explicit KnownNodes(ngx_shm_zone_t& zone) noexcept
        : pool_(reinterpret_cast<ngx_slab_pool_t*>(zone.shm.addr))
    {
    }

    /// A text that is longer than `room` is not kept, nor is one while another worker has the lock.
    void set(std::string_view text) const noexcept;
    /// Empty: nothing is known, or another worker has the lock.
    std::string get() const;

private:
    struct Shared {
        std::size_t length;  // of the bytes that follow
    };

    static ngx_int_t init(ngx_shm_zone_t* zone, void* old_data) noexcept;
    Shared& shared() const noexcept { return *static_cast<Shared*>(pool_->data); }
    char* bytes() const noexcept { return reinterpret_cast<char*>(&shared() + 1); }

    ngx_slab_pool_t* pool_;
};

}  // namespace ratelimit
