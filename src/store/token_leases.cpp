#include "store/token_leases.h"

#include "store/slab_lock.h"

#include <algorithm>
#include <limits>
#include <new>

namespace ratelimit {

/// One block.
struct TokenLeases::Lease {
    BatchAnswer answer;  // that it came with
    std::int64_t left;   // units: requests times cost
    microseconds sent;   // no later than the answer's time
    microseconds expires;
};

struct TokenLeases::Entry : KeyedNode {
    std::uint64_t policy;
    Lease* lease;               // null: none
    microseconds period_began;  // periods are of one second
    std::uint32_t count;        // requests in this period
    std::uint32_t previous;     // in the one before

    static Entry* of(ngx_queue_t* link) noexcept
    {
        return static_cast<Entry*>(KeyedNode::of(link));
    }
    void count_request(microseconds now) noexcept;
    std::int64_t requests_in_a_period(microseconds now) const noexcept;
};

namespace {

constexpr microseconds period{ std::chrono::seconds{ 1 } };

u_char tag_of(std::uint64_t policy) noexcept
{
    return static_cast<u_char>(policy);
}

}  // namespace

void TokenLeases::Shared::init() noexcept
{
    tree.init();
    ngx_queue_init(&used);
    blocks = 0;
}

void TokenLeases::Entry::count_request(microseconds now) noexcept
{
    const microseconds elapsed = now - period_began;
    if (elapsed >= 2 * period || elapsed.count() < 0) {
        previous = 0;
        count = 0;
        period_began = now;
    } else if (elapsed >= period) {
        previous = count;
        count = 0;
        period_began += period;
    }
    count += count < std::numeric_limits<std::uint32_t>::max() ? 1 : 0;
}

/// In the last one until now, if those of the period before came evenly.
std::int64_t TokenLeases::Entry::requests_in_a_period(microseconds now) const noexcept
{
    return count + previous * (period - (now - period_began)).count() / period.count();
}

TokenLeases::Entry* TokenLeases::find(const Request& request) const noexcept
{
    auto* entry = static_cast<Entry*>(shared_->tree.find(request.key, tag_of(request.policy)));
    return entry != nullptr && entry->policy == request.policy ? entry : nullptr;
}

/// At the head of the queue. Null: there is no memory.
TokenLeases::Entry* TokenLeases::find_or_add(const Request& request, microseconds now) noexcept
{
    const u_char tag = tag_of(request.policy);
    auto* entry = static_cast<Entry*>(shared_->tree.find(request.key, tag));
    if (entry != nullptr && entry->policy != request.policy) {
        remove(*entry);
        entry = nullptr;
    }
    if (entry != nullptr) {
        ngx_queue_remove(&entry->queue);
    } else {
        entry = shared_->tree.add<Entry>(request.key, tag, blocks_);
        if (entry == nullptr) {
            return nullptr;
        }
        entry->policy = request.policy;
        entry->lease = nullptr;
        entry->period_began = now;
        entry->count = 0;
        entry->previous = 0;
    }
    ngx_queue_insert_head(&shared_->used, &entry->queue);
    return entry;
}

TokenLeases::Answer TokenLeases::take(
    const Request& request, const Policy& policy, std::int64_t most, microseconds now) noexcept
{
    const SlabLock lock(pool_);

    forget_expired(now);
    Entry* entry = find_or_add(request, now);
    if (entry == nullptr) {
        return {};
    }
    entry->count_request(now);
    Lease* lease = entry->lease;
    // Sent later than now: the clock has stepped back since.
    if (lease != nullptr && (lease->expires <= now || lease->sent > now)) {
        drop_lease(*entry);
        lease = nullptr;
    }
    if (lease == nullptr || lease->left < request.cost) {
        return { std::nullopt, std::min(most, entry->requests_in_a_period(now) - 1), {} };
    }
    lease->left -= request.cost;
    LimitState state = state_before(lease->answer, policy, lease->left);
    state.reset -= std::min(state.reset, now - lease->sent);
    return { state, 0, lease->sent };
}

void TokenLeases::put_back(const Request& request, microseconds sent) noexcept
{
    const SlabLock lock(pool_);

    Entry* entry = find(request);
    if (entry != nullptr && entry->lease != nullptr && entry->lease->sent == sent) {
        entry->lease->left += request.cost;
    }
}

void TokenLeases::add(
    const Request& request, const Policy& policy, const BatchAnswer& answer, std::int64_t left,
    microseconds sent) noexcept
{
    const SlabLock lock(pool_);

    Entry* entry = find_or_add(request, sent);
    if (entry == nullptr) {
        return;
    }
    microseconds expires = sent + life_ahead(answer, policy.algorithm);
    std::int64_t units = left * request.cost;
    if (entry->lease == nullptr) {
        ngx_queue_remove(&entry->queue);  // so that it is not forgotten meanwhile
        entry->lease = static_cast<Lease*>(blocks_.allocate());
        ngx_queue_insert_head(&shared_->used, &entry->queue);
        if (entry->lease == nullptr) {
            return;
        }
    } else if (entry->lease->left > 0 && entry->lease->expires > sent) {
        // Of two workers that asked at once: all are spent until the first of them lapse.
        units += entry->lease->left;
        expires = std::min(expires, entry->lease->expires);
    }
    static_assert(sizeof(Lease) <= SharedBlocks::size);
    new (entry->lease) Lease{ answer, units, sent, expires };
}

void TokenLeases::drop_lease(Entry& entry) noexcept
{
    if (entry.lease != nullptr) {
        blocks_.free(entry.lease);
        entry.lease = nullptr;
    }
}

void TokenLeases::remove(Entry& entry) noexcept
{
    drop_lease(entry);
    ngx_queue_remove(&entry.queue);
    shared_->tree.remove(entry, blocks_);
}

/// Of those that were used longest ago, two for each that comes: what has lapsed, and tells nothing
/// of how busy the key is.
void TokenLeases::forget_expired(microseconds now) noexcept
{
    for (int i = 0; i < 2 && !ngx_queue_empty(&shared_->used); ++i) {
        Entry& oldest = *Entry::of(ngx_queue_last(&shared_->used));
        const bool lapsed =
            oldest.lease == nullptr || oldest.lease->left == 0 || oldest.lease->expires <= now;
        // Began later than now: by another clock, before a reload.
        const bool recent = oldest.period_began <= now && now - oldest.period_began < 2 * period;
        if (!lapsed || recent) {
            return;
        }
        remove(oldest);
    }
}

void TokenLeases::forget_key(std::string_view key) noexcept
{
    const SlabLock lock(pool_);

    shared_->tree.each(key, [this](KeyedNode& node) { remove(static_cast<Entry&>(node)); });
}

bool TokenLeases::forget_oldest() noexcept
{
    if (ngx_queue_empty(&shared_->used)) {
        return false;
    }
    remove(*Entry::of(ngx_queue_last(&shared_->used)));
    return true;
}

}  // namespace ratelimit
