#pragma once

#include "limit/decision.h"
#include "limit/gcra.h"
#include "limit/policy.h"
#include "limit/window_counts.h"
#include "nginx/ngx.h"
#include "store/lru_table.h"
#include "store/timed_queue.h"

#include <memory>
#include <string_view>
#include <type_traits>

namespace ratelimit {

/// A request of one key that is counted in this node's memory.
struct LocalRequest {
    std::string_view key;  // at most KeyedNode::key_limit bytes
    Policy policy;
    std::int64_t cost = 1;
    /// Which of the key's records counts it, less than 2^30: they know nothing of each other.
    std::uint32_t record = 0;
};

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

    /// Decides a request in the two steps of src/limit: `between(granted)` returns whether to count
    /// it. The caller has the zone's lock.
    template <class Between>
    Verdict decide(const LocalRequest& request, microseconds now, Between&& between) noexcept
    {
        using Callable = std::remove_reference_t<Between>;
        return decide_by(
            request, now,
            [](void* callable, bool granted) noexcept {
                return (*static_cast<Callable*>(callable))(granted);
            },
            std::addressof(between));
    }

    /// The answer that the request would have; nothing is counted. Takes the zone's lock.
    Verdict peek(const LocalRequest& request, microseconds now) noexcept;

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
    static std::uint32_t tag_of(const LocalRequest& request) noexcept;
    Entry* add(const LocalRequest& request, const State& state) noexcept;
    Verdict decide_by(
        const LocalRequest& request, microseconds now,
        bool (*between)(void* callable, bool granted) noexcept, void* callable) noexcept;

    LruTable<Entry> table_;
};

}  // namespace ratelimit
