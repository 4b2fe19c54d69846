#include "store/local_limiter.h"

#include <algorithm>

namespace ratelimit {

struct LocalLimiter::Entry : KeyedNode {
    /// By NodeClock::in_memory; from then on the state equals an empty one. Of a block: by the
    /// steady clock.
    microseconds expires;
    State state;

    Kind kind() const noexcept { return static_cast<Kind>(tag() & 3U); }
    bool is_block() const noexcept { return (tag() & 3U) == block_kind; }
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
    return traits_of(algorithm).state;
}

std::size_t LocalLimiter::largest_key(const Policy& policy) noexcept
{
    constexpr std::size_t entry = 2 * SharedBlocks::size;
    if (kind_of(policy.algorithm) != Kind::timed_counts) {
        return entry;
    }
    std::int64_t counts = policy.rate.quota;
    if (!traits_of(policy.algorithm).logs) {
        counts = std::min<std::int64_t>(counts, policy.counted_for() / policy.bucket_width() + 1);
    }
    return entry + TimedQueue::bytes_of(static_cast<std::size_t>(counts));
}

bool LocalLimiter::forget_key(std::string_view key) noexcept
{
    const ZoneLock lock(table_.pool());

    return table_.forget_key(key);
}

bool LocalLimiter::forget_oldest() noexcept
{
    return table_.forget_oldest();
}

std::uint32_t LocalLimiter::tag_of(const LocalRequest& request) noexcept
{
    return request.record << 2U | static_cast<std::uint32_t>(kind_of(request.policy.algorithm));
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

/// A key has one block for all rates; under an override the block has its own entry.
std::uint32_t LocalLimiter::block_tag_of(const LocalRequest& request) noexcept
{
    return request.policy.override_record << 2U | block_kind;
}

/// What is left of the key's block; 0: the key is not blocked. A block that is too long is
/// shortened when it refuses a request.
microseconds LocalLimiter::rest_of_block(const LocalRequest& request, microseconds now) noexcept
{
    const microseconds block = request.policy.block;
    Entry* entry = block.count() == 0 ? nullptr : table_.find(request.key, block_tag_of(request));
    now = clock_->steady(now);
    if (entry == nullptr || entry->expires <= now) {
        return microseconds{ 0 };
    }
    table_.use(*entry);
    if (entry->expires - now > block && request.cost > 0) {
        entry->expires = now + block;
    }
    return std::min(entry->expires - now, block);
}

LocalLimiter::Block LocalLimiter::begin_block(
    const LocalRequest& request, const ClockReading& reading) noexcept
{
    const ZoneLock lock(table_.pool());

    clock_->note(reading);
    const microseconds now = clock_->steady(reading.since_epoch);
    Entry* entry = table_.find(request.key, block_tag_of(request));
    if (entry != nullptr && entry->expires > now) {
        return Block::stands;
    }
    if (clock_->set_back_within(2 * request.policy.counted_at_most(), reading.now)) {
        return Block::none;
    }
    if (entry == nullptr) {
        entry = table_.insert(request.key, block_tag_of(request));
    }
    if (entry == nullptr) {
        return Block::none;
    }
    entry->expires = now + request.policy.block;
    return Block::began;
}

Verdict LocalLimiter::peek(const LocalRequest& request, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    Verdict answer = peek_counts(request, now);
    const microseconds rest = rest_of_block(request, now);
    answer.granted = answer.granted && (request.cost == 0 || rest.count() == 0);
    apply_block(answer, rest);
    return answer;
}

Verdict LocalLimiter::peek_counts(const LocalRequest& request, microseconds now) noexcept
{
    const Kind kind = kind_of(request.policy.algorithm);
    Entry* entry = table_.find(request.key, tag_of(request));
    TimedQueue::Head no_counts;
    State copy = entry == nullptr ? State::of_none(kind, no_counts) : entry->state;
    switch (kind) {
    case Kind::arrival_time:
        return GcraCheck(copy.arrival_time, request.policy, now, request.cost).commit(false);
    case Kind::window_counts:
        return WindowCheck(copy.window_counts, request.policy, now, request.cost).commit(false);
    case Kind::timed_counts:
        break;
    }
    // Not a copy: the check notes which entries have left the window.
    TimedQueue queue(*copy.timed_counts, table_.blocks());
    const Policy policy = longest_hold(*copy.timed_counts, request.policy, now);
    return TimedCheck(queue, copy.timed_counts->total, policy, now, request.cost).peek();
}

/// The policy with the longest `hold` of a configuration that still counts units of this key: while
/// workers of before and after a reload run, each unit counts at least for its own `hold`.
Policy LocalLimiter::longest_hold(
    const TimedQueue::Head& counts, const Policy& policy, microseconds now) noexcept
{
    Policy longest = policy;
    const std::chrono::seconds hold{ counts.hold_s };
    if (hold > policy.rate.window) {
        longest.rate.window = hold;
        if (std::chrono::abs(now - microseconds{ counts.hold_at }) > longest.counted_for()) {
            return policy;
        }
    }
    return longest;
}

/// Calls `use` with the check of the request's state, which is stored then if it matters any
/// longer. Returns how much longer its count lasts there than under the request's own policy.
template <class Use>
microseconds LocalLimiter::use_state(
    const LocalRequest& request, microseconds now, Use&& use) noexcept
{
    const Kind kind = kind_of(request.policy.algorithm);
    microseconds life{ 0 };
    microseconds longer{ 0 };
    const auto run = [&](auto&& check) {
        use(check);
        life = check.life();
    };

    Entry* entry = table_.find(request.key, tag_of(request));
    TimedQueue::Head no_counts;
    State fresh = State::of_none(kind, no_counts);
    if (entry != nullptr) {
        table_.pin(*entry);
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
        TimedQueue::Head& counts = *state.timed_counts;
        TimedQueue queue(counts, table_.blocks());
        const Policy policy = longest_hold(counts, request.policy, now);
        longer = policy.counted_for() - request.policy.counted_for();
        if (longer.count() == 0 && counts_at_one_time(policy.algorithm)) {
            counts.hold_s =
                static_cast<std::uint32_t>(policy.rate.window / std::chrono::seconds{ 1 });
            counts.hold_at = now.count();
        }
        run(TimedCheck(queue, counts.total, policy, now, request.cost));
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
    table_.forget_expired([this, now](const Entry& other) {
        return other.expires <= (other.is_block() ? clock_->steady(now) : now);
    });
    return longer;
}

namespace {

/// Subtracts `longer`, the part of another configuration's `hold`; stays above 0 while anything is
/// held.
microseconds by_own_hold(microseconds reset, microseconds longer) noexcept
{
    return longer.count() == 0 ? reset : std::max(reset - longer, microseconds{ 1 });
}

}  // namespace

Verdict LocalLimiter::decide_by(
    const LocalRequest& request, microseconds now,
    bool (*between)(void* callable, bool granted) noexcept, void* callable) noexcept
{
    const microseconds rest = rest_of_block(request, now);
    Verdict answer;
    const microseconds longer = use_state(request, now, [&](auto& check) {
        const bool granted = check.granted() && (request.cost == 0 || rest.count() == 0);
        const bool take = between(callable, granted);
        answer = check.commit(take && granted);
        answer.granted = granted;
    });
    answer.reset = by_own_hold(answer.reset, longer);
    apply_block(answer, rest);
    return answer;
}

void LocalLimiter::charge(const LocalRequest& request, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    use_state(request, now, [](auto& check) { check.charge(); });
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
    const microseconds longer = use_state(request, now, [&](auto& check) {
        check.charge();
        state.reset = check.life();
    });
    state.reset = by_own_hold(state.reset, longer);
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
        if (counts_at_one_time(request.policy.algorithm) && entry->state.timed_counts->total == 0) {
            table_.remove(*entry);
        }
        break;
    }
}

}  // namespace ratelimit
