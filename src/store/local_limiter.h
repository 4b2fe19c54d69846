#pragma once

#include "base/clock_steps.h"
#include "limit/gcra.h"
#include "limit/policy.h"
#include "limit/refund.h"
#include "limit/verdict.h"
#include "limit/window_counts.h"
#include "nginx/ngx.h"
#include "store/lru_table.h"
#include "store/timed_queue.h"

#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>

namespace ratelimit {

/// A request of one key that is counted in this node's memory.
struct LocalRequest {
    std::string_view key;  // at most KeyedNode::key_limit bytes
    Policy policy;
    std::int64_t cost = 1;
    /// Policy::record, less than 2^30. The records of a key are independent of each other.
    std::uint32_t record = 0;
};

/// The keys of one zone that are counted in its shared memory. If that is full, the least recently
/// used keys are evicted.
///
/// Layout: one Shared, a table of Entries by key, record and kind of state. An entry contains its
/// state. The state of a log or of buckets is a pointer to a TimedQueue::Head in another block. A
/// key that is blocked (Policy::block) has one more entry, without a state: it expires with the
/// block, by the steady clock.
class LocalLimiter {
    struct Entry;

public:
    struct Shared : LruTable<Entry>::Shared {
        ClockSteps clock;  // this node's, followed in zones with Policy::block
        void init(std::span<KeyedTree::Root> roots) noexcept
        {
            LruTable<Entry>::Shared::init(roots);
            clock = {};
        }
    };

    /// Whether a key's state is a list of timed counts.
    static bool has_timed_counts(Algorithm algorithm) noexcept
    {
        return kind_of(algorithm) == Kind::timed_counts;
    }

    /// An upper bound of the memory, in bytes, for one key.
    static std::size_t largest_key(const Policy& policy) noexcept;

    LocalLimiter(ngx_slab_pool_t* pool, Shared& shared) noexcept
        : table_(pool, shared), clock_(&shared.clock)
    {
    }

    ngx_slab_pool_t* pool() const noexcept { return table_.pool(); }

    /// Decides a request in the two steps of src/limit, check and commit. `between(granted)` is
    /// called between them, and returns whether to count the request. The caller must hold the
    /// zone's lock.
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

    /// Follows this node's clock. Call before the requests of policies with a block. The caller
    /// must hold the zone's lock.
    void note_clock(const ClockReading& now) noexcept { clock_->note(now); }

    enum class Block : std::uint8_t {
        none,   // out of memory, or the clock was set back: later counts may refuse wrongly
        began,  // for Policy::block
        stands,
    };
    /// The key's counts refuse a request: blocks the key. Takes the zone's lock.
    Block begin_block(const LocalRequest& request, const ClockReading& now) noexcept;

    /// Counts the cost even if it exceeds the limit. Takes the zone's lock.
    void charge(const LocalRequest& request, microseconds now) noexcept;

    /// Refunds a cost that was counted for this key and policy. Takes the zone's lock.
    void refund(const LocalRequest& request, microseconds now, const Refund& taken) noexcept;

    /// Counts units of a concurrency limit again at `now`, in place of where they were counted.
    /// Returns the verdict after that. Takes the zone's lock.
    Verdict renew(const LocalRequest& request, microseconds now, const Refund& counted) noexcept;

    /// The verdict that the request would get; nothing is counted. Takes the zone's lock.
    Verdict peek(const LocalRequest& request, microseconds now) noexcept;

    /// Takes the zone's lock. Returns whether anything was counted under the key.
    bool forget_key(std::string_view key) noexcept;

    /// Evicts the least recently used key. False: there is none. The caller must hold the lock.
    bool forget_oldest() noexcept;

private:
    using Kind = StateKind;
    static constexpr std::uint32_t block_kind = 3;  // in a tag, instead of a Kind
    union State {
        ArrivalTime arrival_time;
        WindowCounts window_counts;
        TimedQueue::Head* timed_counts;
        State() noexcept : timed_counts(nullptr) {}
        static State of_none(Kind kind, TimedQueue::Head& counts) noexcept;
    };

    static Kind kind_of(Algorithm algorithm) noexcept;
    static Policy longest_hold(
        const TimedQueue::Head& counts, const Policy& policy, microseconds now) noexcept;
    static std::uint32_t tag_of(const LocalRequest& request) noexcept;
    static std::uint32_t block_tag_of(const LocalRequest& request) noexcept;
    void subtract(const LocalRequest& request, microseconds now, const Refund& counted) noexcept;
    Entry* add(const LocalRequest& request, const State& state) noexcept;
    Verdict peek_counts(const LocalRequest& request, microseconds now) noexcept;
    microseconds rest_of_block(const LocalRequest& request, microseconds now) noexcept;
    template <class Use>
    microseconds use_state(const LocalRequest& request, microseconds now, Use&& use) noexcept;
    Verdict decide_by(
        const LocalRequest& request, microseconds now,
        bool (*between)(void* callable, bool granted) noexcept, void* callable) noexcept;

    LruTable<Entry> table_;
    ClockSteps* clock_;
};

}  // namespace ratelimit
