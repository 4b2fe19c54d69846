#include "store/denial_cache.h"

#include <algorithm>
#include <limits>

namespace ratelimit {

struct DenialCache::Entry : KeyedNode {
    std::uint64_t stamp;    // stamp_of policy, server and generation
    microseconds until;     // the refusal applies until then
    microseconds retry_at;  // when a request of this cost would pass
    microseconds reset_at;
    std::uint32_t cost : 30;
    std::uint32_t used_up : 1;  // Verdict::used_up
    std::uint32_t blocked : 1;  // the key is blocked, so every cost is refused
    /// Requests. If the key is blocked, so that none remain: by how many milliseconds its block
    /// ends before retry_at, rounded down.
    std::uint32_t remaining;
};

namespace {

constexpr std::int64_t largest_count = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t most_cost = (std::int64_t{ 1 } << 30U) - 1;

/// `time` + `span`, at most microseconds::max().
microseconds later(microseconds time, microseconds span) noexcept
{
    return span > microseconds::max() - time ? microseconds::max() : time + span;
}

/// An end that is too far ahead is of another clock, or the clock has stepped back: it is over too.
bool is_over(microseconds until, microseconds now) noexcept
{
    return until <= now || until - now > DenialCache::longest;
}

}  // namespace

void DenialCache::Shared::init(std::span<KeyedTree::Root> roots) noexcept
{
    LruTable<Entry>::Shared::init(roots);
    generations = {};
    for (std::atomic<std::uint8_t>& count : forgets) {
        count.store(0, std::memory_order_relaxed);
    }
}

std::optional<DenialCache::Denial> DenialCache::find(
    const KeyedRequest& request, microseconds now) noexcept
{
    const ZoneLock lock(table_.pool());

    Entry* entry = table_.find(request.key, request.tag());
    if (entry == nullptr || !is_of(*entry, request)
        || request.cost < (entry->blocked ? 1 : std::int64_t{ entry->cost })) {
        return std::nullopt;
    }
    if (is_over(entry->until, now)) {
        table_.remove(*entry);
        return std::nullopt;
    }
    table_.use(*entry);

    Verdict state;
    state.reset = std::max(entry->reset_at - now, microseconds{ 0 });
    state.retry_after = entry->retry_at - now;
    if (!entry->blocked) {
        state.remaining = entry->remaining;
        return Denial{ state, entry->cost };
    }
    const microseconds rest = *state.retry_after - std::chrono::milliseconds{ entry->remaining };
    if (request.cost < entry->cost) {
        state.retry_after = rest;
    }
    apply_block(state, rest);
    state.used_up = entry->used_up != 0;
    return Denial{ state, std::min<std::int64_t>(request.cost, entry->cost) };
}

void DenialCache::add(
    const KeyedRequest& request, const Check& check, const Verdict& refusal, microseconds now,
    microseconds at_most) noexcept
{
    const bool blocked = refusal.blocked.count() > 0;
    if (!refusal.retry_after && !blocked) {
        return;
    }
    const microseconds retry_after = refusal.retry_after.value_or(refusal.blocked);
    const microseconds retry_at = later(check.sent, retry_after);
    const microseconds until = blocked ? check.sent + std::min(refusal.blocked, longest)
                                       : std::min(retry_at, check.sent + at_most);
    const std::int64_t remaining = blocked
        ? std::min<std::int64_t>(
            (retry_after - refusal.blocked) / std::chrono::milliseconds{ 1 }, largest_count)
        : refusal.remaining;
    if (until <= now || request.cost <= 0 || request.cost > most_cost
        || remaining > largest_count) {
        return;
    }
    const ZoneLock lock(table_.pool());

    if (forgets_of(request.key) != check.forgets) {
        return;
    }
    Entry* entry = table_.find(request.key, request.tag());
    if (entry == nullptr) {
        entry = table_.insert(request.key, request.tag());
    }
    if (entry != nullptr) {
        table_.use(*entry);
        entry->stamp = stamp_of(request, check.server % shared_->generations.size());
        entry->until = until;
        entry->retry_at = retry_at;
        entry->reset_at = later(check.sent, refusal.reset);
        entry->cost = static_cast<std::uint32_t>(request.cost) & most_cost;
        entry->used_up = refusal.used_up ? 1 : 0;
        entry->blocked = blocked ? 1 : 0;
        entry->remaining = static_cast<std::uint32_t>(remaining);
    }
    table_.forget_expired([now](const Entry& other) { return is_over(other.until, now); });
}

/// A hash whose low bits are the server.
std::uint64_t DenialCache::stamp_of(
    const KeyedRequest& request, std::uint64_t server) const noexcept
{
    constexpr std::uint64_t odd = 0x9E37'79B9'7F4A'7C15;  // spreads the generations
    return (request.policy_hash + shared_->generations[server] * odd) << server_bits | server;
}

/// Whether the entry is of the request's policy and of its server's current generation.
bool DenialCache::is_of(const Entry& entry, const KeyedRequest& request) const noexcept
{
    return entry.stamp == stamp_of(request, entry.stamp % shared_->generations.size());
}

void DenialCache::forget_server(std::uint32_t server) noexcept
{
    const ZoneLock lock(table_.pool());

    ++shared_->generations[server % shared_->generations.size()];
}

void DenialCache::forget_key(std::string_view key) noexcept
{
    const ZoneLock lock(table_.pool());

    ++counter_of(key);
    table_.forget_key(key);
}

bool DenialCache::forget_oldest() noexcept
{
    return table_.forget_oldest();
}

}  // namespace ratelimit
