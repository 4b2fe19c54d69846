#pragma once

#include "check/coalesced_call.h"

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace ratelimit {

/// Where the checks of one Redis are sent: while a check of some keys is in flight, later ones of
/// the same keys, policies and order wait for its end, and then go together as one script call. So
/// a hot key has one call in flight, however many requests it has, and each is decided after all
/// that came before it.
class Coalescer {
public:
    explicit Coalescer(redis::Client& client) : client_(client), buckets_(first_buckets) {}
    Coalescer(const Coalescer&) = delete;
    Coalescer& operator=(const Coalescer&) = delete;

    redis::Client& client() noexcept { return client_; }

    /// Sends the part, or keeps it for the next call; no part waits longer than connect_timeout +
    /// timeout. False: it was not sent, and has failed.
    bool send(ShardPart& part) noexcept;

    /// No check is in flight.
    bool idle() const noexcept { return used_ == 0; }

    /// How many have waited for others since this was last called.
    std::uint64_t take_waited() noexcept { return std::exchange(waited_, 0); }

private:
    /// A call in its bucket, or among the unused ones.
    struct Entry final : CoalescedCall {
        explicit Entry(Coalescer& coalescer) noexcept
            : CoalescedCall(coalescer.client_), owner(coalescer)
        {
        }
        void on_unused() noexcept override { owner.remove(*this); }

        Coalescer& owner;
        Entry* next = nullptr;
        std::size_t hash = 0;
    };

    static constexpr std::size_t first_buckets = 64;

    bool send_or_wait(ShardPart& part);
    Entry*& bucket_of(std::size_t hash) noexcept { return buckets_[hash & (buckets_.size() - 1)]; }
    Entry* find(std::size_t hash, const ShardPart& part) noexcept;
    Entry& add(std::size_t hash);
    void grow();
    void remove(Entry& entry) noexcept;

    redis::Client& client_;
    std::vector<Entry*> buckets_;  // by hash, a power of two
    std::size_t used_ = 0;
    std::deque<Entry> all_;  // their memory is used again
    Entry* unused_ = nullptr;
    std::uint64_t waited_ = 0;
};

}  // namespace ratelimit
