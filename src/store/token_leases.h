#pragma once

#include "limit/policy.h"
#include "limit/run_reply.h"
#include "nginx/ngx.h"
#include "store/keyed_request.h"
#include "store/lru_table.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// Tokens that Redis granted in advance for busy keys of one zone, in the zone's shared memory: any
/// worker spends them without Redis. They expire, and those of the least recently used keys are
/// evicted when memory is full; in Redis they stay counted.
///
/// Layout: one Shared, a table of Entries by key and KeyedRequest::tag. An entry with tokens has a
/// Lease in another block. A call takes the zone's lock; a request's cost is at least 1.
class TokenLeases {
    struct Entry;

public:
    using Shared = LruTable<Entry>::Shared;

    /// The call whose tokens a request spent: when it was sent, and when its tokens expire.
    struct Source {
        microseconds sent{ 0 };
        microseconds expires{ 0 };
    };

    struct Answer {
        std::optional<Verdict> state;    // granted; empty: Redis decides
        std::int64_t worth_leasing = 0;  // requests, at most; if Redis decides
        Source source;                   // of what was granted
    };

    TokenLeases(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : table_(pool, shared, SharedBlocks::Owner::leases)
    {
    }

    /// Spends what the request costs, if that much is leased. If not, it is worth leasing for as
    /// many requests as this key had in about the last second, up to `most`.
    Answer spend(
        const KeyedRequest& request, const Policy& policy, std::int64_t most,
        microseconds now) noexcept;

    /// Returns what a request spent, since another limit has refused it. It expires as before.
    void refund(const KeyedRequest& request, const Source& source) noexcept;

    /// Keeps what Redis has granted beyond the requests of a call: `left` requests of this cost.
    /// `sent`: no later than Redis counted them.
    void add(
        const KeyedRequest& request, const Policy& policy, const RunReply& answer,
        std::int64_t left, microseconds sent) noexcept;

    void forget_key(std::string_view key) noexcept;

    /// Forgets the key that was used least recently. False: there is none. The caller has the lock.
    bool forget_oldest() noexcept;

private:
    struct Part;
    struct Lease;

    Entry* find(const KeyedRequest& request) const noexcept;
    Entry* find_or_add(const KeyedRequest& request, microseconds now) noexcept;
    void forget_expired(microseconds now) noexcept;

    LruTable<Entry> table_;
};

}  // namespace ratelimit
