#pragma once

#include "check/shared_check.h"
#include "redis/client.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace ratelimit {

/// Where checks go to one Redis: while a check of some keys is on its way, later ones of the same
/// keys, policies and order wait for its end, and then go together as one script call. So a hot key
/// has one call on its way, however many ask, and each is decided after all that came before it.
class Coalescer {
public:
    explicit Coalescer(redis::Client& client);
    ~Coalescer();
    Coalescer(const Coalescer&) = delete;
    Coalescer& operator=(const Coalescer&) = delete;

    redis::Client& client() noexcept { return client_; }

    /// Sends the group's check, or keeps it for the next call. It hears of its end, not from inside
    /// this, unless the answer is false: nothing was sent. It may be destroyed at any time, and is
    /// then forgotten. No group waits longer than connect_timeout + timeout.
    bool send(CheckGroup& group) noexcept;

    /// No check is in flight.
    bool idle() const noexcept { return used_ == 0; }

    /// How many have waited for others since this was last called.
    std::uint64_t take_waited() noexcept { return std::exchange(waited_, 0); }

private:
    friend class SharedCheck;

    std::size_t bucket_of(std::size_t hash) const noexcept { return hash & (buckets_.size() - 1); }
    SharedCheck* find(std::size_t hash, const CheckGroup& group) const noexcept;
    SharedCheck& add(std::size_t hash, const CheckGroup& group);
    void grow();
    /// Nothing of it is on its way, and nobody waits for it.
    void remove(SharedCheck& check) noexcept;

    redis::Client& client_;
    std::vector<SharedCheck*> buckets_;  // by hash, a power of two
    std::size_t used_ = 0;
    std::deque<SharedCheck> all_;  // their memory is used again
    SharedCheck* free_ = nullptr;
    std::uint64_t waited_ = 0;
};

}  // namespace ratelimit
