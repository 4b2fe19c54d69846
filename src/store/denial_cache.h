#pragma once

#include "limit/decision.h"
#include "nginx/ngx.h"
#include "store/keyed_tree.h"

#include <optional>
#include <string_view>

namespace ratelimit {

/// The keys of one zone that Redis refuses for now, in the zone's shared memory, so that a flood is
/// refused by any worker without asking. Only time frees a refused key, so a refusal that is taken
/// from here is one that Redis would give. Full memory forgets the keys that were used least
/// recently, of which Redis is then asked again.
///
/// Layout: one Shared: a tree of all Entries, whose tag is a byte of the policy's hash, and a queue
/// of them by use; all under the zone's lock.
class DenialCache {
public:
    struct Shared {
        KeyedTree tree;
        ngx_queue_t used;          // most recently first
        ngx_uint_t blocks;         // that all entries have
        std::uint64_t generation;  // what is of an earlier one is void
        void init() noexcept;
    };

    /// No refusal is remembered for longer, so that clocks that run apart, or a key that was freed
    /// in Redis by hand, are noticed.
    static constexpr microseconds longest{ std::chrono::seconds{ 60 } };

    /// What is refused: requests of this key under a policy, of this cost or more. `policy`: a hash
    /// of all that the zone decides by.
    struct Request {
        std::string_view key;
        std::uint64_t policy;
        std::int64_t cost;
    };

    DenialCache(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : pool_(pool), shared_(&shared), blocks_(pool, SharedBlocks::Owner::denials, shared.blocks)
    {
    }

    struct Denial {
        LimitState state;   // as it stands now, for that cost
        std::int64_t cost;  // that was refused
    };

    /// Empty: Redis has to be asked. Times are of one clock for each policy.
    std::optional<Denial> find(const Request& request, microseconds now) noexcept;

    /// Remembers a refusal until its retry time, but not longer than `at_most`; one that has none,
    /// not at all. `sent`: no later
    /// than the check was sent, so that the time is not over later than for Redis.
    void add(
        const Request& request, const LimitState& refusal, microseconds sent, microseconds now,
        microseconds at_most) noexcept;

    void forget_all() noexcept;
    /// What is known of the key under any policy.
    void forget_key(std::string_view key) noexcept;

    /// Forgets the key that was used least recently. False: there is none. The caller has the lock.
    bool forget_oldest() noexcept;

    /// Without the lock: whether there is anything to look for.
    bool empty() const noexcept { return shared_->tree.size() == 0; }

private:
    struct Entry;

    std::uint64_t stamp_of(const Request& request) const noexcept;
    Entry* find_entry(const Request& request) const noexcept;
    Entry* find_or_add(const Request& request) noexcept;
    void remove(Entry& entry) noexcept;
    void forget_expired(microseconds now) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
    SharedBlocks blocks_;
};

}  // namespace ratelimit
