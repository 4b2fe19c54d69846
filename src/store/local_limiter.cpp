#include "store/local_limiter.h"

#include <algorithm>

namespace ratelimit {

struct LocalLimiter::Entry : KeyedNode {
    microseconds expires;  // since the epoch; from then on it is as good as none
    State state;

    Kind kind() const noexcept { return static_cast<Kind>(tag() & 3U); }
    void release(SharedBlocks& blocks) noexcept
    {
        if (kind() == Kind::timed_counts) {
            TimedQueue(*state.timed_counts, blocks).clear();
            blocks.free(state.timed_counts);
        }
    }
};

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

void LocalLimiter::forget_key(std::string_view key) noexcept
{
    const ZoneLock lock(table_.pool());

    table_.forget_key(key);
}

bool LocalLimiter::forget_oldest() noexcept
{
    return table_.forget_oldest();
}

std::uint32_t LocalLimiter::tag_of(const LocalRequest& request) noexcept
{
    return request.record << 2U | static_cast<std::uint32_t>(kind_of(request.policy.algorithm));
}

/// A new entry, the most recently used one. Null: there is no memory.
LocalLimiter::Entry* LocalLimiter::add(const LocalRequest& request, const State& state) noexcept
{
    const Kind kind = kind_of(request.policy.algorithm);
    void* head = nullptr;
    if (kind == Kind::timed_counts && (head = table_.blocks().allocate()) == nullptr) {
        return nullptr;
    }
    Entry* entry = table_.insert(request.key, tag_of(request));
    if (entry == nullptr) {
        if (head != nullptr) {
            table_.blocks().free(head);
        }
        return nullptr;
    }
    entry->state = state;
    if (head != nullptr) {
        entry->state.timed_counts = new (head) TimedQueue::Head(*state.timed_counts);
    }
    return entry;
}

Verdict LocalLimiter::peek(const LocalRequest& request, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    const Kind kind = kind_of(request.policy.algorithm);
    Entry* entry = table_.find(request.key, tag_of(request));
    TimedQueue::Head no_counts;
    State copy = entry == nullptr ? State::of_none(kind, no_counts) : entry->state;
    switch (kind) {
    case Kind::arrival_time:
        return GcraCheck(copy.arrival_time, request.policy, now, request.cost).commit(false);
    case Kind::window_counts:
        return WindowCheck(copy.window_counts, request.policy, now, request.cost).commit(false);
    default:
        // What it lets go of has left the window.
        TimedQueue queue(*copy.timed_counts, table_.blocks());
        return TimedCheck(queue, copy.timed_counts->total, request.policy, now, request.cost)
            .commit(false);
    }
}

Verdict LocalLimiter::decide_by(
    const LocalRequest& request, microseconds now,
    bool (*between)(void* callable, bool granted) noexcept, void* callable) noexcept
{
    const Kind kind = kind_of(request.policy.algorithm);
    microseconds life{ 0 };
    Verdict answer;
    const auto run = [&](auto&& decision) {
        const bool take = between(callable, decision.granted());
        answer = decision.commit(take);
        life = decision.life();
    };

    Entry* entry = table_.find(request.key, tag_of(request));
    TimedQueue::Head no_counts;
    State fresh = State::of_none(kind, no_counts);
    if (entry != nullptr) {
        table_.hold(*entry);
    }
    State& state = entry == nullptr ? fresh : entry->state;
    switch (kind) {
    case Kind::arrival_time:
        run(GcraCheck(state.arrival_time, request.policy, now, request.cost));
        break;
    case Kind::window_counts:
        run(WindowCheck(state.window_counts, request.policy, now, request.cost));
        break;
    case Kind::timed_counts: {
        TimedQueue queue(*state.timed_counts, table_.blocks());
        run(TimedCheck(queue, state.timed_counts->total, request.policy, now, request.cost));
        break;
    }
    }
    if (entry == nullptr && life.count() > 0) {
        entry = add(request, fresh);
    }
    if (entry != nullptr) {
        entry->expires = now + life;
        table_.use(*entry);
        if (life.count() == 0) {
            table_.remove(*entry);
        }
    }
    table_.forget_expired([now](const Entry& other) { return other.expires <= now; });
    return answer;
}

}  // namespace ratelimit
