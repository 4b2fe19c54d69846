#pragma once

#include "limit/batch.h"
#include "limit/policy.h"
#include "nginx/ngx.h"
#include "store/keyed_tree.h"

#include <optional>
#include <string_view>

namespace ratelimit {

/// What was counted in Redis ahead for busy keys of one zone, in the zone's shared memory, for any
/// worker to spend without asking. It lapses when its time is over, and with the least recently
/// used keys when memory is full; what has lapsed stays counted.
///
/// Layout: one Shared: a tree of all Entries, whose tag is a byte of the policy's hash, and a queue
/// of them by use; all under the zone's lock. An entry with tokens has a Lease in another block.
class TokenLeases {
public:
    struct Shared {
        KeyedTree tree;
        ngx_queue_t used;   // most recently first; without one that is given its Lease
        ngx_uint_t blocks;  // that all entries have
        void init() noexcept;
    };

    /// `policy`: a hash of all that the zone decides by. `cost`: at least 1.
    struct Request {
        std::string_view key;
        std::uint64_t policy;
        std::int64_t cost;
    };

    /// What a request's cost was taken of: when that was asked for, and lapses.
    struct Source {
        microseconds sent{ 0 };
        microseconds expires{ 0 };
    };

    struct Answer {
        std::optional<LimitState> state;  // granted; empty: Redis has to be asked
        std::int64_t ahead = 0;           // for so many requests more, at most
        Source source;                    // of what was granted
    };

    TokenLeases(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : pool_(pool), shared_(&shared), blocks_(pool, SharedBlocks::Owner::leases, shared.blocks)
    {
    }

    /// Spends what the request costs, if there is as much. If there is not, as many requests are
    /// worth asking for as there were for this key in about the last second, up to `most`.
    Answer take(
        const Request& request, const Policy& policy, std::int64_t most, microseconds now) noexcept;

    /// For a request that took, and that another limit has refused. It lapses when it would have.
    void put_back(const Request& request, const Source& source) noexcept;

    /// Keeps what `answer` took and nobody has spent: `left` requests of this cost. `sent`: no
    /// later than it was counted.
    void add(
        const Request& request, const Policy& policy, const BatchAnswer& answer, std::int64_t left,
        microseconds sent) noexcept;

    void forget_key(std::string_view key) noexcept;

    /// Forgets the key that was used least recently. False: there is none. The caller has the lock.
    bool forget_oldest() noexcept;

private:
    struct Part;
    struct Lease;
    struct Entry;

    Entry* find(const Request& request) const noexcept;
    Entry* find_or_add(const Request& request, microseconds now) noexcept;
    void drop_lease(Entry& entry) noexcept;
    void remove(Entry& entry) noexcept;
    void forget_expired(microseconds now) noexcept;

    ngx_slab_pool_t* pool_;
    Shared* shared_;
    SharedBlocks blocks_;
};

}  // namespace ratelimit
