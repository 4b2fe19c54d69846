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

/// Tokens that Redis granted in advance for busy keys of one zone, in the zone's shared memory, so
/// that each worker can spend them without Redis. They expire, and those of the least recently used
/// keys are evicted if memory is full. In Redis they stay counted. If the clock is set back by a
/// second or more, all expire.
///
/// Layout: one Shared, a table of Entries by key and KeyedRequest::tag. An entry with tokens has a
/// Lease in another block. Public functions take the zone's lock unless stated otherwise. The cost
/// of a request must be at least 1.
class TokenLeases {
    struct Entry;

public:
    using Shared = LruTable<Entry>::Shared;

    /// Identifies the call whose tokens a request spent.
    struct TokenSource {
        microseconds sent{ 0 };     // when the call was sent
        microseconds expires{ 0 };  // when its tokens expire
    };

    struct Answer {
        std::optional<Verdict> state;    // granted; empty: Redis must decide
        std::int64_t worth_leasing = 0;  // how many requests to lease; if granted: in a renewal
        TokenSource source;              // of the tokens that were spent
    };

    TokenLeases(ngx_slab_pool_t* pool, Shared& shared) noexcept : table_(pool, shared) {}

    /// Spends the tokens that the request costs, if that many are leased. If not, `worth_leasing`
    /// is the number of other requests of this key in about the last second, at most `most`; 0
    /// while a renewal is under way. If it spends them, `worth_leasing` is the number that a
    /// renewal should add: 0 while more than half of the first number is left and half of the
    /// lease's time is not over. With the rest of the lease it makes at most `most`.
    Answer spend(
        const KeyedRequest& request, const Policy& policy, std::int64_t most,
        microseconds now) noexcept;

    /// Another limit has refused a request, which then does not make the key busier. Returns the
    /// tokens that it spent; an empty source: none. They expire no later than before.
    void refund(const KeyedRequest& request, const TokenSource& source) noexcept;

    /// Notes that a request which spent tokens begins a renewal. It is under way until tokens are
    /// added, and at most until `ends`. False: another one of this node is, or the lease is gone.
    bool begin_renewal(const KeyedRequest& request, microseconds now, microseconds ends) noexcept;
    /// A renewal has ended, and added nothing.
    void end_renewal(const KeyedRequest& request) noexcept;

    /// Keeps what Redis granted beyond the requests of a call: tokens for `left` requests of this
    /// cost. `sent`: a lower bound of the time at which Redis counted them.
    void add(
        const KeyedRequest& request, const Policy& policy, const RunReply& answer,
        std::int64_t left, microseconds sent) noexcept;

    void forget_key(std::string_view key) noexcept;

    /// Evicts the least recently used key. False: there is none. The caller must hold the lock.
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
