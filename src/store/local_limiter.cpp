#include "store/local_limiter.h"

#include <algorithm>

namespace ratelimit {

struct LocalLimiter::Entry : KeyedNode {
    microseconds expires;  // since the epoch; from then on the state equals an empty one
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
    if (policy.algorithm != Algorithm::sliding_window_log) {
        counts = std::min<std::int64_t>(counts, policy.counted_for() / policy.bucket_width() + 1);
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

std::uint32_t LocalLimiter::block_tag_of(const LocalRequest& request) noexcept
{
    return request.record << 2U | block_kind;
}

/// Adds an entry as the most recently used one. Null: out of memory.
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

/// What is left of the key's block. Empty: the key is not blocked.
std::optional<microseconds> LocalLimiter::rest_of_block(
    const LocalRequest& request, microseconds now) noexcept
{
    if (request.policy.block.count() == 0) {
        return std::nullopt;
    }
    Entry* entry = table_.find(request.key, block_tag_of(request));
    if (entry == nullptr) {
        return std::nullopt;
    }
    if (entry->expires <= now) {
        table_.remove(*entry);
        return std::nullopt;
    }
    table_.use(*entry);
    return entry->expires - now;
}

/// Blocks the key until `ends`, and removes its state.
void LocalLimiter::keep_block(const LocalRequest& request, microseconds ends) noexcept
{
    const std::uint32_t tag = block_tag_of(request);
    Entry* entry = table_.find(request.key, tag);
    if (entry == nullptr) {
        entry = table_.insert(request.key, tag);
    }
    if (entry == nullptr) {
        return;  // out of memory: the state still refuses
    }
    entry->expires = ends;
    if (Entry* state = table_.find(request.key, tag_of(request))) {
        table_.remove(*state);
    }
}

Verdict LocalLimiter::peek(const LocalRequest& request, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    if (const auto rest = rest_of_block(request, now)) {
        return blocked(request.cost, std::min(*rest, request.policy.block));
    }
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
        // Not a copy: the check notes which entries have left the window.
        TimedQueue queue(*copy.timed_counts, table_.blocks());
        return TimedCheck(queue, copy.timed_counts->total, request.policy, now, request.cost)
            .peek();
    }
}

/// Calls `use` with the check of the request's state, which is stored then if it matters any
/// longer.
template <class Use>
void LocalLimiter::use_state(const LocalRequest& request, microseconds now, Use&& use) noexcept
{
    const Kind kind = kind_of(request.policy.algorithm);
    microseconds life{ 0 };
    const auto run = [&](auto&& check) {
        use(check);
        life = check.life();
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
}

Verdict LocalLimiter::decide_by(
    const LocalRequest& request, microseconds now,
    bool (*between)(void* callable, bool granted) noexcept, void* callable) noexcept
{
    const microseconds block = request.policy.block;
    if (const auto rest = rest_of_block(request, now)) {
        const Verdict answer = blocked(request.cost, std::min(*rest, block));
        between(callable, answer.granted);
        if (*rest > block && request.cost > 0) {
            keep_block(request, now + block);  // the clock ran backwards, or a block was longer
        }
        return answer;
    }
    Verdict answer;
    use_state(request, now, [&](auto& check) {
        const bool take = between(callable, check.granted());
        answer = check.commit(take);
    });
    if (!answer.granted && block.count() > 0) {
        keep_block(request, now + block);
        answer = begun_block(block);
    }
    return answer;
}

void LocalLimiter::charge(const LocalRequest& request, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    if (!rest_of_block(request, now)) {
        use_state(request, now, [](auto& check) { check.charge(); });
    }
}

void LocalLimiter::refund(
    const LocalRequest& request, microseconds now, const Refund& taken) noexcept
{
    const ZoneLock lock(table_.pool());

    subtract(request, now, taken);
}

Verdict LocalLimiter::renew(
    const LocalRequest& request, microseconds now, const Refund& counted) noexcept
{
    const ZoneLock lock(table_.pool());

    subtract(request, now, counted);
    Verdict state;
    use_state(request, now, [&](auto& check) {
        check.charge();
        state.reset = check.life();
    });
    return state;
}

/// The caller must hold the lock.
void LocalLimiter::subtract(
    const LocalRequest& request, microseconds now, const Refund& taken) noexcept
{
    Entry* entry = table_.find(request.key, tag_of(request));
    if (entry == nullptr) {
        return;
    }
    switch (entry->kind()) {
    case Kind::arrival_time:
        ratelimit::refund(entry->state.arrival_time, request.policy, now, taken);
        break;
    case Kind::window_counts:
        ratelimit::refund(entry->state.window_counts, request.policy, now, taken);
        break;
    case Kind::timed_counts:
        TimedQueue queue(*entry->state.timed_counts, table_.blocks());
        ratelimit::refund(queue, entry->state.timed_counts->total, request.policy, taken);
        if (request.policy.algorithm == Algorithm::concurrency
            && entry->state.timed_counts->total == 0) {
            table_.remove(*entry);
        }
        break;
    }
}

}  // namespace ratelimit
