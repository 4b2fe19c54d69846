#include "store/local_limiter.h"

#include "store/slab_lock.h"

#include <algorithm>
#include <functional>

namespace ratelimit {

struct LocalLimiter::Entry : KeyedNode {
    microseconds expires;  // since the epoch; from then on it is as good as none
    State state;

    Kind kind() const noexcept { return static_cast<Kind>(tag()); }
    static Entry* of(ngx_queue_t* link) noexcept
    {
        return static_cast<Entry*>(KeyedNode::of(link));
    }
};

void LocalLimiter::Shared::init() noexcept
{
    tree.init();
    ngx_queue_init(&used);
    blocks = 0;
}

LocalLimiter::State LocalLimiter::State::of_none(Kind kind, TimedQueue::Head& counts) noexcept
{
    State state;
    switch (kind) {
    case Kind::arrival_time:
        new (&state.arrival_time) ArrivalTime;
        break;
    case Kind::window_counts:
        new (&state.window_counts) WindowCounts;
        break;
    case Kind::timed_counts:
        state.timed_counts = &counts;
        break;
    }
    return state;
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
    constexpr std::size_t entry = 2 * SharedBlocks::size;
    if (kind_of(policy.algorithm) != Kind::timed_counts) {
        return entry;
    }
    std::int64_t counts = policy.rate.quota;
    if (policy.algorithm == Algorithm::sliding_window_buckets) {
        counts = std::min<std::int64_t>(counts, policy.rate.window / policy.bucket_width() + 1);
    }
    return entry + TimedQueue::bytes_of(static_cast<std::size_t>(counts));
}

bool LocalLimiter::has_older() const noexcept
{
    return ngx_queue_head(&shared_->used) != ngx_queue_last(&shared_->used);
}

void LocalLimiter::forget_key(ngx_slab_pool_t* pool, std::string_view key) noexcept
{
    const SlabLock lock(pool);

    shared_->tree.each(key, [this](KeyedNode& node) { remove(static_cast<Entry&>(node)); });
}

bool LocalLimiter::forget_oldest() noexcept
{
    if (ngx_queue_empty(&shared_->used)) {
        return false;
    }
    remove(*Entry::of(ngx_queue_last(&shared_->used)));
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
        TimedQueue(*entry.state.timed_counts, blocks_).clear();
        blocks_.free(entry.state.timed_counts);
    }
    ngx_queue_remove(&entry.queue);
    shared_->tree.remove(entry, blocks_);
}

/// A new entry, in no queue yet. Null: there is no room even for one.
LocalLimiter::Entry* LocalLimiter::add(std::string_view key, Kind kind, const State& state) noexcept
{
    void* head = nullptr;
    if (kind == Kind::timed_counts && (head = blocks_.allocate()) == nullptr) {
        return nullptr;
    }
    auto* entry = shared_->tree.add<Entry>(key, static_cast<u_char>(kind), blocks_);
    if (entry == nullptr) {
        if (head != nullptr) {
            blocks_.free(head);
        }
        return nullptr;
    }
    entry->state = state;
    if (head != nullptr) {
        entry->state.timed_counts = new (head) TimedQueue::Head(*state.timed_counts);
    }
    return entry;
}

LimitState LocalLimiter::look(const LocalCheck& check, microseconds now) noexcept
{
    const Kind kind = kind_of(check.policy.algorithm);
    auto* entry = static_cast<Entry*>(shared_->tree.find(check.key, static_cast<u_char>(kind)));
    TimedQueue::Head no_counts;
    State copy = entry == nullptr ? State::of_none(kind, no_counts) : entry->state;
    switch (kind) {
    case Kind::arrival_time:
        return GcraCheck(copy.arrival_time, check.policy, now, check.cost).settle(false);
    case Kind::window_counts:
        return WindowCheck(copy.window_counts, check.policy, now, check.cost).settle(false);
    default:
        // What it lets go of has left the window.
        TimedQueue queue(*copy.timed_counts, blocks_);
        return TimedCheck(queue, copy.timed_counts->total, check.policy, now, check.cost)
            .settle(false);
    }
}

template <class Between>
LimitState LocalLimiter::decide(
    const LocalCheck& check, microseconds now, Between&& between) noexcept
{
    const Kind kind = kind_of(check.policy.algorithm);
    microseconds life{ 0 };
    LimitState answer;
    const auto run = [&](auto&& decision) {
        const bool take = between(decision.granted());
        answer = decision.settle(take);
        life = decision.life();
    };

    auto* entry = static_cast<Entry*>(shared_->tree.find(check.key, static_cast<u_char>(kind)));
    TimedQueue::Head no_counts;
    State fresh = State::of_none(kind, no_counts);
    if (entry != nullptr) {
        ngx_queue_remove(&entry->queue);  // so that it is not forgotten meanwhile
    }
    State& state = entry == nullptr ? fresh : entry->state;
    switch (kind) {
    case Kind::arrival_time:
        run(GcraCheck(state.arrival_time, check.policy, now, check.cost));
        break;
    case Kind::window_counts:
        run(WindowCheck(state.window_counts, check.policy, now, check.cost));
        break;
    case Kind::timed_counts: {
        TimedQueue queue(*state.timed_counts, blocks_);
        run(TimedCheck(queue, state.timed_counts->total, check.policy, now, check.cost));
        break;
    }
    }
    if (entry == nullptr && life.count() > 0) {
        entry = add(check.key, kind, fresh);
    }
    if (entry != nullptr) {
        entry->expires = now + life;
        ngx_queue_insert_head(&shared_->used, &entry->queue);
        if (life.count() == 0) {
            remove(*entry);
        }
    }
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
            ZoneMemory::lock(next);
            last = next;
        }
    }
    ~ZoneLocks()
    {
        for (const LocalCheck& check : checks_) {
            ZoneMemory::unlock(pool_of(check));
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

LimitState look_locally(const LocalCheck& check, microseconds now) noexcept
{
    const ZoneLocks locks({ &check, 1 });
    return ZoneMemory(*check.memory).local_limiter().look(check, now);
}

void decide_locally(std::span<const LocalCheck> checks, microseconds now, bool take) noexcept
{
    const ZoneLocks locks(checks);
    decide_next(checks, now, take);
}

}  // namespace ratelimit
