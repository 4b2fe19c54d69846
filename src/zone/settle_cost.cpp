#include "zone/settle_cost.h"

#include "check/coalescer.h"
#include "check/settlement.h"
#include "zone/ahead.h"

#include <algorithm>

namespace ratelimit {

namespace {

void settle_locally(const AppliedLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    LocalLimiter limiter = limit.zone->memory().local_limiter();
    const std::int64_t more = std::max<std::int64_t>(cost - limit.cost, 0);
    LocalRequest request{ limit.key, limit.policy, more, limit.zone->record_of(limit.policy) };
    if (more > 0) {
        limiter.charge(request, now);
    } else {
        limiter.refund(request, now, { limit.cost - cost, limit.taken_at, limit.state.reset });
    }
}

}  // namespace

void settle_cost(const AppliedLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    const std::int64_t settled = settled_cost(limit.policy, limit.cost, cost);
    if (limit.source == Source::local) {
        settle_locally(limit, settled, now);
        return;
    }
    if (limit.source == Source::ahead) {
        settle_ahead(limit, settled);
    } else {
        const Refund counted{ limit.cost, limit.taken_at, limit.state.reset };
        settle(limit.coalescer->client(), limit, counted, settled, now);
    }
    if (settled < limit.cost) {
        limit.zone->refunded(limit.key);  // others may pass sooner than this node remembers
    }
}

}  // namespace ratelimit
