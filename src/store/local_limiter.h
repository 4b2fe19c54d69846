#pragma once

#include "limit/decision.h"
#include "limit/gcra.h"
#include "limit/policy.h"
#include "limit/window_counts.h"
#include "nginx/ngx.h"
#include "store/lru_table.h"
#include "store/timed_queue.h"

#include <span>
#include <string_view>

namespace ratelimit {

struct LocalCheck;

/// The keys of one zone that are counted in its shared memory. When that is full, the keys that
/// were used least recently are forgotten.
///
/// Layout: one Shared, a table of Entries by key, record and kind of state. An entry has its state
/// in itself; that of a log or of buckets is a TimedQueue.
class LocalLimiter {
    struct Entry;

public:
    using Shared = LruTable<Entry>::Shared;

    /// Whether a key's state is only known by the window that it is counted by.
    static bool has_timed_counts(Algorithm algorithm) noexcept
    {
        return kind_of(algorithm) == Kind::timed_counts;
    }

    /// How much memory, in bytes, a key may come to need.
    static std::size_t largest_key(const Policy& policy) noexcept;

    LocalLimiter() noexcept = default;
    LocalLimiter(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : table_(pool, shared, SharedBlocks::Owner::local_limiter)
    {
    }

    ngx_slab_pool_t* pool() const noexcept { return table_.pool(); }

    /// Decides one limit in the two steps of src/limit: `between` gets whether it is granted, and
    /// returns whether to count it. The caller has the zone's lock.
    template <class Between>
    LimitState decide(const LocalCheck& check, microseconds now, Between&& between) noexcept;

    /// The answer that the check would have; nothing is counted. The caller has the zone's lock.
    LimitState peek(const LocalCheck& check, microseconds now) noexcept;

    /// Takes the zone's lock.
    void forget_key(std::string_view key) noexcept;

    /// Whether there is a key besides that which was used last.
    bool has_older() const noexcept { return table_.has_several(); }

    /// Forgets the key that was used least recently. False: there is none. The caller has the lock.
    bool forget_oldest() noexcept;

private:
    enum class Kind : std::uint32_t { arrival_time, window_counts, timed_counts };
    union State {
        ArrivalTime arrival_time;
        WindowCounts window_counts;
        TimedQueue::Head* timed_counts;
        State() noexcept : timed_counts(nullptr) {}
        static State of_none(Kind kind, TimedQueue::Head& counts) noexcept;
    };

    static Kind kind_of(Algorithm algorithm) noexcept;
    static std::uint32_t tag_of(const LocalCheck& check) noexcept;
    Entry* add(const LocalCheck& check, const State& state) noexcept;

    LruTable<Entry> table_;
};

/// One limit of one request, to be decided in this node's memory.
struct LocalCheck {
    LocalLimiter limiter;  // of the zone; another check of the request has another one
    std::string_view key;  // at most KeyedNode::key_limit bytes
    Policy policy;
    std::int64_t cost = 1;
    bool shadow = false;          // never stands in the way of the other limits
    LimitState* state = nullptr;  // where the answer goes
    /// Which of the key's records is meant, less than 2^30: they know nothing of each other.
    std::uint32_t record = 0;
};

/// Decides several limits as one: a request is counted in all of them or in none, as
/// lua/several.lua does. `now`: since the epoch. `take`: unless a limit that is decided elsewhere
/// has refused.
void decide_locally(std::span<const LocalCheck> checks, microseconds now, bool take) noexcept;

/// The answer that a check would have.
LimitState peek_locally(const LocalCheck& check, microseconds now) noexcept;

}  // namespace ratelimit
