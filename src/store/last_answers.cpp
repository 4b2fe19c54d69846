#include "store/last_answers.h"

#include "limit/refill_time.h"

#include <algorithm>
#include <limits>

namespace ratelimit {

struct LastAnswers::Entry : KeyedNode {
    std::uint64_t policy_hash;
    microseconds decided;   // of the last answer; 0: there is none
    microseconds received;  // when it arrived; without an answer: when the entry was made
    microseconds reset_at;
    std::uint32_t left;    // by the last answer
    std::uint32_t let_in;  // since then

    std::int64_t rest() const noexcept
    {
        return std::max<std::int64_t>(std::int64_t{ left } - let_in, 0);
    }
    Verdict state(const Policy& policy, microseconds now) const noexcept;
    bool takes(const KeyAnswer& answer) const noexcept;
    /// The whole limit should be available again. A key's first answer is awaited for some time.
    bool is_over(microseconds now) const noexcept
    {
        return reset_at <= now && now - received >= std::chrono::seconds{ 10 };
    }
    void exhaust(microseconds when, microseconds arrived, microseconds reset) noexcept
    {
        decided = when;
        received = arrived;
        reset_at = std::max(reset_at, reset);
        left = 0;
    }
};

namespace {

constexpr std::size_t most_others = 255;  // policies of a key, each of which is visited

std::uint32_t units(std::int64_t count) noexcept
{
    constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(count, 0, most));
}

}  // namespace

/// Granted. The reset is that of the last answer and of what was let in since; exact only for the
/// algorithms that keep an arrival time.
Verdict LastAnswers::Entry::state(const Policy& policy, microseconds now) const noexcept
{
    Verdict state;
    state.granted = true;
    state.remaining = rest();
    state.reset = std::max(reset_at - now, microseconds{ 0 });
    if (keeps_arrival_time(policy.algorithm)) {
        state.reset += refill_time_ceil(let_in, policy.rate);
    } else if (let_in > 0 && state.reset.count() == 0) {
        state.reset = policy.counted_for();
    }
    return state;
}

/// Whether the answer replaces what is known: Redis made it later, or the clock of Redis was set
/// back, since its call was sent after the other answer had arrived. Otherwise it can only lower
/// what is left.
bool LastAnswers::Entry::takes(const KeyAnswer& answer) const noexcept
{
    return answer.decided > decided || answer.sent >= received;
}

LastAnswers::Entry* LastAnswers::find(const KeyedRequest& request) const noexcept
{
    Entry* entry = table_.find(request.key, request.tag());
    return entry != nullptr && entry->policy_hash == request.policy_hash ? entry : nullptr;
}

/// Null: nothing can be known of the key under this policy, so that Redis must decide. Another one
/// has this tag, or it could not be added.
LastAnswers::Entry* LastAnswers::find_or_add(
    const KeyedRequest& request, const Policy& policy, microseconds now) noexcept
{
    shared_->now = now;
    table_.forget_expired([now](const Entry& other) { return other.is_over(now); });
    Entry* entry = table_.any_of(request.key);
    if (entry == nullptr) {
        return add(request, policy);
    }
    if (entry->tag() != request.tag()) {
        entry = table_.find(request.key, request.tag());
    }
    if (entry == nullptr) {
        return add_beside_others(request, policy);
    }
    return entry->policy_hash == request.policy_hash ? entry : nullptr;
}

/// Adds the entry of a key that has others: nothing is left if that is the last answer about one of
/// them. Null: there is no memory, or the key has too many policies.
LastAnswers::Entry* LastAnswers::add_beside_others(
    const KeyedRequest& request, const Policy& policy) noexcept
{
    std::size_t others = 0;
    Entry known{};  // by the others: a copy, since insert may evict them
    table_.each(request.key, [&](const Entry& other) {
        ++others;
        if (other.left == 0 && other.decided > known.decided) {
            known.exhaust(other.decided, other.received, other.reset_at);
        }
    });
    if (others > most_others) {
        forget_over(request.key);
        return nullptr;
    }
    Entry* entry = add(request, policy);
    if (entry != nullptr && known.decided.count() != 0) {
        entry->exhaust(known.decided, known.received, known.reset_at);
    }
    return entry;
}

/// Adds an entry by its own limit alone. Null: there is no memory.
LastAnswers::Entry* LastAnswers::add(const KeyedRequest& request, const Policy& policy) noexcept
{
    Entry* entry = table_.insert(request.key, request.tag());
    if (entry == nullptr) {
        return nullptr;
    }
    entry->policy_hash = request.policy_hash;
    entry->decided = entry->reset_at = microseconds{ 0 };
    entry->received = shared_->now;
    entry->left = shared_->now < shared_->scarce_until ? 0 : units(policy.limit());
    entry->let_in = 0;
    return entry;
}

/// Evicts the key's entries that are over.
void LastAnswers::forget_over(std::string_view key) noexcept
{
    table_.each(key, [this](Entry& entry) {
        if (entry.is_over(shared_->now)) {
            table_.remove(entry);
        }
    });
}

/// Sets the key's other policies to nothing left, by an answer of one that says so.
void LastAnswers::exhaust_others(const KeyedRequest& request, const KeyAnswer& answer) noexcept
{
    table_.each(request.key, [&](Entry& other) {
        if (other.policy_hash != request.policy_hash && other.takes(answer)) {
            other.exhaust(answer.decided, answer.received, answer.received + answer.reset);
            put_in_queue(other, true);
        }
    });
}

void LastAnswers::put_in_queue(Entry& entry, bool scarce) noexcept
{
    if (scarce) {
        shared_->scarce.use(entry);
    } else {
        table_.use(entry);
    }
}

std::optional<Verdict> LastAnswers::let_in(
    const KeyedRequest& request, const Policy& policy, std::int64_t ahead,
    microseconds now) noexcept
{
    if (policy.limit() < ahead) {
        return std::nullopt;
    }
    const ZoneLock lock(table_.pool());

    Entry* entry = find_or_add(request, policy, now);
    if (entry == nullptr) {
        return std::nullopt;
    }
    const bool scarce = entry->left < ahead;
    put_in_queue(*entry, scarce);
    if (scarce || entry->rest() < request.cost) {
        return std::nullopt;
    }
    entry->let_in = units(entry->let_in + request.cost);
    return entry->state(policy, now);
}

void LastAnswers::take_back(const KeyedRequest& request) noexcept
{
    const ZoneLock lock(table_.pool());

    if (Entry* entry = find(request)) {
        entry->let_in = units(entry->let_in - request.cost);
    }
}

void LastAnswers::answered(
    const KeyedRequest& request, const Policy& policy, std::int64_t ahead, const KeyAnswer& answer,
    std::int64_t unanswered) noexcept
{
    const ZoneLock lock(table_.pool());

    if (Entry* entry = find_or_add(request, policy, answer.received)) {
        if (entry->takes(answer)) {
            entry->decided = answer.decided;
            entry->received = answer.received;
            entry->reset_at = answer.received + answer.reset;
            entry->left = units(answer.left);
            entry->let_in = units(unanswered);
        } else {
            entry->left = std::min(entry->left, units(answer.left));
        }
        put_in_queue(*entry, entry->left < ahead);
    }
    if (answer.left <= 0) {
        exhaust_others(request, answer);
    }
}

void LastAnswers::doubt(const KeyedRequest& request) noexcept
{
    const ZoneLock lock(table_.pool());

    if (Entry* entry = find(request)) {
        entry->left = 0;
        put_in_queue(*entry, true);
    }
}

void LastAnswers::forget_key(std::string_view key) noexcept
{
    const ZoneLock lock(table_.pool());

    table_.forget_key(key);
}

bool LastAnswers::forget_oldest() noexcept
{
    const auto* scarce = static_cast<const Entry*>(shared_->scarce.oldest());
    const bool over = scarce != nullptr && scarce->reset_at <= shared_->now;
    return table_.forget_oldest() || (over && forget_oldest_scarce());
}

bool LastAnswers::forget_oldest_scarce() noexcept
{
    auto* oldest = static_cast<Entry*>(shared_->scarce.oldest());
    if (oldest != nullptr) {
        shared_->scarce_until = std::max(shared_->scarce_until, oldest->reset_at);
        table_.remove(*oldest);
    }
    return oldest != nullptr;
}

}  // namespace ratelimit
