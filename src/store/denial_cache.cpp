#include "store/denial_cache.h"

#include "store/slab_lock.h"

#include <algorithm>
#include <limits>

namespace ratelimit {

struct DenialCache::Entry : KeyedNode {
    std::uint64_t stamp;    // of policy and generation
    microseconds until;     // it is known to be refused
    microseconds retry_at;  // when a request of this cost passes
    microseconds reset_at;
    std::uint32_t cost;
    std::uint32_t remaining;

    static Entry* of(ngx_queue_t* link) noexcept
    {
        return static_cast<Entry*>(KeyedNode::of(link));
    }
};

namespace {

constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();

u_char tag_of(std::uint64_t policy) noexcept
{
    return static_cast<u_char>(policy);
}

/// `time` + `span`, which may be without end.
microseconds later(microseconds time, microseconds span) noexcept
{
    return span > microseconds::max() - time ? microseconds::max() : time + span;
}

/// Far ahead: the clock has stepped back since, or was another one.
bool is_over(microseconds until, microseconds now) noexcept
{
    return until <= now || until - now > DenialCache::longest;
}

}  // namespace

void DenialCache::Shared::init() noexcept
{
    tree.init();
    ngx_queue_init(&used);
    blocks = 0;
    generation = 0;
}

DenialCache::Entry* DenialCache::find_entry(const Request& request) const noexcept
{
    return static_cast<Entry*>(shared_->tree.find(request.key, tag_of(request.policy)));
}

std::optional<DenialCache::Denial> DenialCache::find(
    const Request& request, microseconds now) noexcept
{
    const SlabLock lock(pool_);

    Entry* entry = find_entry(request);
    if (entry == nullptr || entry->stamp != stamp_of(request) || request.cost < entry->cost) {
        return std::nullopt;
    }
    if (is_over(entry->until, now)) {
        remove(*entry);
        return std::nullopt;
    }
    ngx_queue_remove(&entry->queue);
    ngx_queue_insert_head(&shared_->used, &entry->queue);

    LimitState state;
    state.remaining = entry->remaining;
    state.reset = std::max(entry->reset_at - now, microseconds{ 0 });
    state.retry_after = entry->retry_at - now;
    return Denial{ state, entry->cost };
}

void DenialCache::add(
    const Request& request, const LimitState& refusal, microseconds sent, microseconds now,
    microseconds at_most) noexcept
{
    if (!refusal.retry_after) {
        return;
    }
    const microseconds retry_at = later(sent, *refusal.retry_after);
    const microseconds until = std::min(retry_at, sent + at_most);
    if (until <= now || request.cost <= 0 || request.cost > most || refusal.remaining > most) {
        return;
    }
    const SlabLock lock(pool_);

    Entry* entry = find_or_add(request);
    if (entry != nullptr) {
        entry->stamp = stamp_of(request);
        entry->until = until;
        entry->retry_at = retry_at;
        entry->reset_at = later(sent, refusal.reset);
        entry->cost = static_cast<std::uint32_t>(request.cost);
        entry->remaining = static_cast<std::uint32_t>(refusal.remaining);
    }
    forget_expired(now);
}

/// At the head of the queue. Null: there is no memory.
DenialCache::Entry* DenialCache::find_or_add(const Request& request) noexcept
{
    Entry* entry = find_entry(request);
    if (entry != nullptr) {
        ngx_queue_remove(&entry->queue);
    } else {
        entry = shared_->tree.add<Entry>(request.key, tag_of(request.policy), blocks_);
        if (entry == nullptr) {
            return nullptr;
        }
    }
    ngx_queue_insert_head(&shared_->used, &entry->queue);
    return entry;
}

std::uint64_t DenialCache::stamp_of(const Request& request) const noexcept
{
    constexpr std::uint64_t odd = 0x9E37'79B9'7F4A'7C15;  // spreads the generations
    return request.policy + shared_->generation * odd;
}

void DenialCache::forget_all() noexcept
{
    const SlabLock lock(pool_);

    ++shared_->generation;
}

void DenialCache::remove(Entry& entry) noexcept
{
    ngx_queue_remove(&entry.queue);
    shared_->tree.remove(entry, blocks_);
}

/// Those that were used longest ago, if their time is over: two for each that comes.
void DenialCache::forget_expired(microseconds now) noexcept
{
    for (int i = 0; i < 2 && !ngx_queue_empty(&shared_->used); ++i) {
        Entry& oldest = *Entry::of(ngx_queue_last(&shared_->used));
        if (!is_over(oldest.until, now)) {
            return;
        }
        remove(oldest);
    }
}

void DenialCache::forget_key(std::string_view key) noexcept
{
    const SlabLock lock(pool_);

    shared_->tree.each(key, [this](KeyedNode& node) { remove(static_cast<Entry&>(node)); });
}

bool DenialCache::forget_oldest() noexcept
{
    if (ngx_queue_empty(&shared_->used)) {
        return false;
    }
    remove(*Entry::of(ngx_queue_last(&shared_->used)));
    return true;
}

}  // namespace ratelimit
