#include "zone/settle_cost.h"

#include "check/coalescer.h"
#include "check/settlement.h"
#include "zone/ahead.h"

#include <algorithm>

namespace ratelimit {

namespace {

void settle_locally(
    const AppliedLimit& limit, std::int64_t refunded, std::int64_t charged,
    microseconds now) noexcept
{
    LocalLimiter limiter = limit.zone->memory().local_limiter();
    LocalRequest request{ limit.key, limit.policy, charged, limit.zone->record_of(limit.policy) };
    if (charged > 0) {
        limiter.charge(request, now);
    } else {
        limiter.refund(request, now, { refunded, limit.taken_at, limit.state.reset });
    }
}

}  // namespace

void settle_cost(const AppliedLimit& limit, std::int64_t cost, microseconds now) noexcept
{
    const std::int64_t refunded = std::max<std::int64_t>(limit.cost - cost, 0);
    std::int64_t charged = std::max<std::int64_t>(cost - limit.cost, 0);
    if (traits_of(limit.policy.algorithm).logs) {
        // Each unit is an entry of the log, and more entries than the quota refuse no more
        // requests.
        charged = std::min(charged, limit.policy.whole());
    }
    if (limit.source == Source::local) {
        settle_locally(limit, refunded, charged, now);
        return;
    }
    redis::Client& client = limit.coalescer->client();
    if (limit.source == Source::ahead) {
        settle_ahead(limit, limit.cost + charged - refunded);
    } else if (charged > 0) {
        charge(client, limit, charged, now);
    } else {
        refund(client, limit, { refunded, limit.taken_at, limit.state.reset }, now);
    }
    // Others may pass sooner than this node remembers.
    DenialCache denials = limit.zone->memory().denials();
    if (refunded > 0 && denials.may_have(limit.key)) {
        denials.forget_key(limit.key);
    }
}

}  // namespace ratelimit
