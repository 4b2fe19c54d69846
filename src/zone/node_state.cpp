#include "zone/node_state.h"

#include "check/coalescer.h"
#include "limit/refill_time.h"

#include <utility>

namespace ratelimit {

namespace {

/// A lower bound of the additional wait of a request that costs this much more. It is exact for the
/// algorithms that keep an arrival time.
microseconds longer_for(const Policy& policy, std::int64_t cost) noexcept
{
    return keeps_arrival_time(policy.algorithm) ? refill_time_ceil(cost, policy.rate)
                                                : microseconds{ 0 };
}

void decide_by(Source source, const Verdict& state, AppliedLimit& limit) noexcept
{
    limit.decided = true;
    limit.source = source;
    limit.state = state;
}

}  // namespace

void spend_lease(AppliedLimit& limit, microseconds now) noexcept
{
    const Zone& zone = *limit.zone;
    // A token of a lease could not be refunded once the lease has expired.
    if (zone.lease == 0 || limit.cost == 0 || limit.settled_later) {
        return;
    }
    const auto answer = zone.memory().leases().spend(limit.keyed(), limit.policy, zone.lease, now);
    limit.lease_wanted = answer.worth_leasing;
    if (answer.state) {
        limit.lease = answer.source;
        decide_by(Source::lease, *answer.state, limit);
    }
}

void recall_refusal(AppliedLimit& limit) noexcept
{
    DenialCache denials = limit.zone->memory().denials();
    if (!limit.zone->cache || !denials.may_have(limit.key)) {
        return;
    }
    auto denial = denials.find(limit.keyed(), limit.asked);
    if (!denial) {
        return;
    }
    if (limit.policy.block.count() > 0) {
        denial->state.block = Block::lasts;  // every refusal begins one, for any cost
    } else if (limit.cost > limit.policy.limit()) {
        denial->state.retry_after.reset();  // never, although a smaller cost will pass
    } else {
        *denial->state.retry_after += longer_for(limit.policy, limit.cost - denial->cost);
    }
    decide_by(Source::cache, denial->state, limit);
}

void remember_refusal(const AppliedLimit& limit, const NodeClock& clock) noexcept
{
    if (!limit.state.granted && limit.zone->cache) {
        KeyedRequest request = limit.keyed();
        if (limit.state.block != Block::none) {
            request.cost = 1;  // a block refuses every cost
        }
        limit.zone->memory().denials().add(
            request, limit.coalescer->client().server_of(limit.shard), limit.state, limit.asked,
            clock.time_of(*limit.zone), limit.zone->remembered);
    }
}

void keep_lease(const AppliedLimit& limit, const RunReply& answer, std::int64_t spent) noexcept
{
    if (answer.taken > spent) {  // a shadow limit may have counted fewer
        limit.zone->memory().leases().add(
            limit.keyed(), limit.policy, answer, answer.taken - spent, limit.asked);
    }
}

void refund_lease(AppliedLimit& limit) noexcept
{
    if (const auto source = std::exchange(limit.lease, std::nullopt)) {
        limit.zone->memory().leases().refund(limit.keyed(), *source);
        refund_verdict(limit.state, limit.policy, limit.cost);
    }
}

void forget_refusals(const AppliedLimit& limit) noexcept
{
    DenialCache denials = limit.zone->memory().denials();
    if (limit.state.granted && limit.cost > 0 && limit.zone->remembered < DenialCache::longest
        && denials.may_have(limit.key)) {
        denials.forget_key(limit.key);
    }
}

}  // namespace ratelimit
