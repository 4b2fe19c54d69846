#include "zone/node_state.h"

#include "check/coalescer.h"
#include "check/lease_renewals.h"
#include "check/settlement.h"
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

void spend_tokens(AppliedLimit& limit, microseconds now) noexcept
{
    const Zone& zone = *limit.zone;
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
    if (!limit.zone->cache) {
        return;
    }
    limit.forgets = denials.forgets_of(limit.key);
    if (!denials.may_have(limit.key)) {
        return;
    }
    auto denial = denials.find(limit.keyed(), limit.began);
    if (!denial) {
        return;
    }
    Verdict& state = denial->state;
    if (limit.cost > limit.policy.limit()) {
        state.retry_after.reset();  // never, although a smaller cost will pass
    } else if (
        limit.cost > denial->cost
        && (state.blocked.count() == 0 || *state.retry_after > state.blocked)) {
        *state.retry_after += longer_for(limit.policy, limit.cost - denial->cost);
    }
    decide_by(Source::cache, state, limit);
}

void remember_refusal(const AppliedLimit& limit, const NodeClock& clock) noexcept
{
    // Any refusal may begin a block, so only blocks are remembered.
    const bool may_block = limit.policy.block.count() > 0 && limit.state.blocked.count() == 0;
    if (!limit.state.granted && limit.zone->cache && !may_block) {
        limit.zone->memory().denials().add(
            limit.keyed(),
            { limit.coalescer->client().server_of(limit.shard), limit.forgets, limit.began },
            limit.state, clock.time_of(*limit.zone), limit.zone->remembered);
    }
}

namespace {

/// The clock by which Redis decides the limit. With clock=local it is that of this node.
redis::ServerClock* clock_of(const AppliedLimit& limit) noexcept
{
    static redis::ServerClock own;
    return limit.now ? &own : limit.coalescer->client().clock_of(limit.shard);
}

/// Whether counts dated after now, left by a clock that was set back, may still refuse.
bool clock_was_set_back(const AppliedLimit& limit, const NodeClock& clock) noexcept
{
    const redis::ServerClock* decides = clock_of(limit);
    return decides != nullptr
        && decides->set_back_within(2 * limit.policy.counted_at_most(), clock.monotonic());
}

}  // namespace

void note_clock(const AppliedLimit& limit, const NodeClock& clock) noexcept
{
    if (limit.now && limit.policy.block.count() > 0) {
        clock_of(limit)->note(clock.read());
    }
}

void begin_block(AppliedLimit& limit, const NodeClock& clock) noexcept
{
    const Zone& zone = *limit.zone;
    if (limit.source == Source::local) {
        if (!limit.shadow && !limit.state.granted && limit.state.blocked.count() == 0
            && limit.policy.reserve == 0) {
            const LocalRequest request{ limit.key, limit.policy, limit.cost, 0 };
            switch (zone.memory().local_limiter().begin_block(request, clock.read())) {
            case LocalLimiter::Block::began:
                zone.block_began();
                [[fallthrough]];
            case LocalLimiter::Block::stands:
                apply_block(limit.state, limit.policy.block);
                break;
            case LocalLimiter::Block::none:
                break;
            }
        }
    } else if (
        limit.source == Source::redis && limit.begins_block
        && (limit.state.blocked.count() > 0 || !clock_was_set_back(limit, clock))) {
        redis::Client& client = limit.coalescer->client();
        // By then units of requests that another server refused, or that Redis counted too late,
        // are returned or stated, which lifts a block that began only because of them.
        const bool waits = zone.spans_servers || client.unsettled().contains(limit.block_key);
        const microseconds later = waits ? client.longest_wait() : microseconds{ 0 };
        ratelimit::begin_block(client, limit, later, clock.since_epoch());
        if (later.count() == 0) {
            apply_block(limit.state, limit.policy.block);
            remember_refusal(limit, clock);
        }
    }
}

void keep_lease(const AppliedLimit& limit, const RunReply& answer, std::int64_t spent) noexcept
{
    if (answer.taken > spent) {  // a shadow limit may have counted fewer
        limit.zone->memory().leases().add(
            limit.keyed(), limit.policy, answer, answer.taken - spent, limit.began);
    }
}

void renew_lease(const AppliedLimit& limit, const NodeClock& clock) noexcept
{
    if (!limit.lease || limit.lease_wanted == 0 || limit.renewals == nullptr) {
        return;
    }
    const Zone& zone = *limit.zone;
    const microseconds now = clock.time_of(zone);
    const microseconds ends = now + limit.coalescer->client().longest_wait();
    if (!zone.memory().leases().begin_renewal(limit.keyed(), now, ends)) {
        return;
    }
    Receipt alone = limit;
    alone.shadow = false;
    alone.now = zone.clock == Clock::local ? std::optional{ now } : std::nullopt;
    limit.renewals->renew(alone, limit.lease_wanted, now);
}

bool refund_lease(AppliedLimit& limit) noexcept
{
    if (const auto source = std::exchange(limit.lease, std::nullopt)) {
        limit.zone->memory().leases().refund(limit.keyed(), *source);
        refund_verdict(limit.state, limit.policy, limit.cost);
        return true;
    }
    if (limit.lease_wanted > 0 && !(limit.decided && !limit.state.granted)) {
        limit.zone->memory().leases().refund(limit.keyed(), {});  // another limit refuses it
    }
    return false;
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
