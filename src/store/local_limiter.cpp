#include "store/local_limiter.h"

#include "store/zone_memory.h"

#include <algorithm>
#include <functional>

namespace ratelimit {

struct LocalLimiter::Entry : KeyedNode {
    microseconds expires;  // since the epoch; from then on it is as good as none
    State state;

    explicit Entry(const State& first) noexcept : KeyedNode{}, expires{ 0 }, state(first) {}

    Kind kind() const noexcept { return static_cast<Kind>(tag); }
    static Entry* of(ngx_queue_t* link) noexcept
    {
        return static_cast<Entry*>(KeyedNode::of(link));
    }
};

void LocalLimiter::Shared::init() noexcept
{
    tree.init();
    ngx_queue_init(&used);
    size = 0;
    evictions = 0;
}

LocalLimiter::State::State(Kind kind) noexcept
{
    switch (kind) {
    case Kind::arrival_time:
        new (&arrival_time) ArrivalTime;
        break;
    case Kind::window_counts:
        new (&window_counts) WindowCounts;
        break;
    case Kind::timed_counts:
        new (&timed_counts) TimedQueue::State{};
        break;
    }
}

LocalLimiter::Kind LocalLimiter::kind_of(Algorithm algorithm) noexcept
{
    if (keeps_arrival_time(algorithm)) {
        return Kind::arrival_time;
    }
    const bool counts =
        algorithm == Algorithm::fixed_window || algorithm == Algorithm::sliding_window_counter;
    return counts ? Kind::window_counts : Kind::timed_counts;
}

std::size_t LocalLimiter::largest_key(const Policy& policy) noexcept
{
    constexpr std::size_t entry = 512;
    if (kind_of(policy.algorithm) != Kind::timed_counts) {
        return entry;
    }
    std::int64_t counts = policy.rate.quota;
    if (policy.algorithm == Algorithm::sliding_window_buckets) {
        counts = std::min<std::int64_t>(counts, policy.rate.window / policy.bucket_width() + 1);
    }
    return entry + TimedQueue::bytes_of(static_cast<std::size_t>(counts));
}

void* LocalLimiter::allocate(std::size_t bytes) noexcept
{
    // Where sizes differ, one entry that goes need not make room.
    constexpr int most_forgotten = 1000;
    for (int i = 0; i < most_forgotten; ++i) {
        if (void* memory = ngx_slab_alloc_locked(pool_, bytes)) {
            return memory;
        }
        if (!forget_oldest()) {
            return nullptr;
        }
    }
    return nullptr;
}

void LocalLimiter::free(void* memory) noexcept
{
    ngx_slab_free_locked(pool_, memory);
}

bool LocalLimiter::forget_oldest() noexcept
{
    ngx_queue_t* oldest = ngx_queue_last(&shared_->used);
    if (in_use_ != nullptr && oldest == &in_use_->queue) {
        oldest = ngx_queue_prev(oldest);
    }
    if (oldest == ngx_queue_sentinel(&shared_->used)) {
        return false;
    }
    remove(*Entry::of(oldest));
    ++shared_->evictions;
    return true;
}

/// Those that were used longest ago, if their time is over: two for each that comes.
void LocalLimiter::forget_expired(microseconds now) noexcept
{
    for (int i = 0; i < 2 && !ngx_queue_empty(&shared_->used); ++i) {
        Entry& oldest = *Entry::of(ngx_queue_last(&shared_->used));
        if (oldest.expires > now) {
            return;
        }
        remove(oldest);
    }
}

void LocalLimiter::remove(Entry& entry) noexcept
{
    if (entry.kind() == Kind::timed_counts) {
        TimedQueue(entry.state.timed_counts, *this).clear();
    }
    shared_->tree.remove(entry);
    ngx_queue_remove(&entry.queue);
    free(&entry);
    --shared_->size;
}

/// Keeps a state until it expires, in its entry or a new one.
void LocalLimiter::keep(
    Entry* entry, std::string_view key, Kind kind, State& state, microseconds expires) noexcept
{
    if (entry == nullptr) {
        void* memory = allocate(KeyedTree::size_of<Entry>(key));
        if (memory == nullptr) {
            if (kind == Kind::timed_counts) {
                TimedQueue(state.timed_counts, *this).clear();
            }
            return;  // not even room for one: it is forgotten at once
        }
        entry = new (memory) Entry(state);
        shared_->tree.insert(*entry, key, static_cast<u_char>(kind));
        ++shared_->size;
    } else {
        ngx_queue_remove(&entry->queue);
    }
    entry->expires = expires;
    ngx_queue_insert_head(&shared_->used, &entry->queue);
}

template <class Between>
LimitState LocalLimiter::decide(
    const LocalCheck& check, microseconds now, Between&& between) noexcept
{
    const Kind kind = kind_of(check.policy.algorithm);
    State fresh(kind);
    microseconds life{ 0 };
    LimitState answer;
    const auto run = [&](auto&& decision) {
        const bool take = between(decision.granted());
        answer = decision.settle(take);
        life = decision.life();
    };

    in_use_ = static_cast<Entry*>(shared_->tree.find(check.key, static_cast<u_char>(kind)));
    State& state = in_use_ == nullptr ? fresh : in_use_->state;
    switch (kind) {
    case Kind::arrival_time:
        run(GcraCheck(state.arrival_time, check.policy, now, check.cost));
        break;
    case Kind::window_counts:
        run(WindowCheck(state.window_counts, check.policy, now, check.cost));
        break;
    case Kind::timed_counts: {
        TimedQueue queue(state.timed_counts, *this);
        run(TimedCheck(queue, state.timed_counts.total, check.policy, now, check.cost));
        break;
    }
    }
    if (life.count() > 0) {
        keep(in_use_, check.key, kind, state, now + life);
    } else if (in_use_ != nullptr) {
        remove(*in_use_);
    }
    in_use_ = nullptr;
    forget_expired(now);
    return answer;
}

namespace {

ngx_slab_pool_t* pool_of(const LocalCheck& check) noexcept
{
    return reinterpret_cast<ngx_slab_pool_t*>(check.memory->shm.addr);
}

/// The locks of all checks' zones, taken in the order of their addresses, so that no two workers
/// wait for each other.
class ZoneLocks {
public:
    explicit ZoneLocks(std::span<const LocalCheck> checks) noexcept : checks_(checks)
    {
        ngx_slab_pool_t* last = nullptr;
        while (ngx_slab_pool_t* next = after(last)) {
            ngx_shmtx_lock(&next->mutex);
            last = next;
        }
    }
    ~ZoneLocks()
    {
        for (const LocalCheck& check : checks_) {
            ngx_shmtx_unlock(&pool_of(check)->mutex);
        }
    }
    ZoneLocks(const ZoneLocks&) = delete;
    ZoneLocks& operator=(const ZoneLocks&) = delete;

private:
    ngx_slab_pool_t* after(ngx_slab_pool_t* last) const noexcept
    {
        ngx_slab_pool_t* next = nullptr;
        for (const LocalCheck& check : checks_) {
            ngx_slab_pool_t* pool = pool_of(check);
            if (std::less<>{}(last, pool) && (next == nullptr || std::less<>{}(pool, next))) {
                next = pool;
            }
        }
        return next;
    }

    std::span<const LocalCheck> checks_;
};

/// Decides the first limit when all behind it are known: whether all of them grant the request.
bool decide_next(std::span<const LocalCheck> checks, microseconds now, bool granted) noexcept
{
    if (checks.empty()) {
        return granted;
    }
    const LocalCheck& check = checks.front();
    LocalLimiter limiter = ZoneMemory(*check.memory).local_limiter();
    bool all_granted = false;
    *check.state = limiter.decide(check, now, [&](bool this_one) {
        all_granted = decide_next(checks.subspan(1), now, granted && (this_one || check.shadow));
        return all_granted;
    });
    return all_granted;
}

}  // namespace

void decide_locally(std::span<const LocalCheck> checks, microseconds now, bool take) noexcept
{
    const ZoneLocks locks(checks);
    decide_next(checks, now, take);
}

}  // namespace ratelimit
