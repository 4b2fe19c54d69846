#include "zone/local_limits.h"

#include "store/zone_lock.h"
#include "zone/node_clock.h"

#include <functional>

namespace ratelimit {

namespace {

ngx_slab_pool_t* pool_of(const AppliedLimit& limit) noexcept
{
    return limit.zone->memory().local_limiter().pool();
}

/// Holds the locks of the zones of all local limits. They are taken in the order of their
/// addresses, so that no two workers can deadlock.
class ZoneLocks {
public:
    explicit ZoneLocks(std::span<const AppliedLimit> limits) noexcept : limits_(limits)
    {
        ngx_slab_pool_t* last = nullptr;
        while (ngx_slab_pool_t* next = after(last)) {
            ZoneLock::lock(next);
            last = next;
        }
    }
    ~ZoneLocks()
    {
        for (const AppliedLimit& limit : limits_) {
            if (limit.source == Source::local) {
                ZoneLock::unlock(pool_of(limit));
            }
        }
    }
    ZoneLocks(const ZoneLocks&) = delete;
    ZoneLocks& operator=(const ZoneLocks&) = delete;

private:
    ngx_slab_pool_t* after(ngx_slab_pool_t* last) const noexcept
    {
        ngx_slab_pool_t* next = nullptr;
        for (const AppliedLimit& limit : limits_) {
            if (limit.source != Source::local) {
                continue;
            }
            ngx_slab_pool_t* pool = pool_of(limit);
            if (std::less<>{}(last, pool) && (next == nullptr || std::less<>{}(pool, next))) {
                next = pool;
            }
        }
        return next;
    }

    std::span<const AppliedLimit> limits_;
};

/// Decides the local limits. Each one commits after the recursion has decided all limits behind it.
/// `granted`: whether the limits before it grant the request. Returns whether all do.
bool decide_next(std::span<AppliedLimit> limits, const ClockReading& now, bool granted) noexcept
{
    if (limits.empty()) {
        return granted;
    }
    AppliedLimit& limit = limits.front();
    if (limit.source != Source::local) {
        return decide_next(limits.subspan(1), now, granted);
    }
    LocalLimiter limiter = limit.zone->memory().local_limiter();
    if (limit.policy.block.count() > 0) {
        limiter.note_clock(now);
    }
    limit.taken_at = NodeClock::in_memory(limit.policy, now);
    bool all_granted = false;
    const LocalRequest request{ limit.key, limit.policy, limit.cost,
                                limit.zone->record_of(limit.policy) };
    limit.state = limiter.decide(request, limit.taken_at, [&](bool this_one) {
        all_granted = decide_next(limits.subspan(1), now, granted && (this_one || limit.shadow));
        return all_granted;
    });
    return all_granted;
}

}  // namespace

void decide_local_limits(
    std::span<AppliedLimit> limits, const ClockReading& now, bool take) noexcept
{
    const ZoneLocks locks(limits);
    decide_next(limits, now, take);
}

}  // namespace ratelimit
