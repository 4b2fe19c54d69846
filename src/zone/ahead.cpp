#include "zone/ahead.h"

#include "check/ahead_units.h"
#include "check/coalescer.h"
#include "check/settlement.h"

#include <algorithm>
#include <utility>

namespace ratelimit {

namespace {

/// Lets the request in under this limit, in the node's memory. False: Redis must decide it.
bool let_in(AppliedLimit& limit) noexcept
{
    const Zone& zone = *limit.zone;
    if (limit.ahead == nullptr) {
        return false;
    }
    const std::size_t hash = limit.ahead->hash_of(limit.redis_key);
    if (limit.ahead->unanswered(limit.redis_key, hash) + limit.cost > zone.ahead) {
        return false;
    }
    LastAnswers answers = zone.memory().last_answers();
    const auto state = answers.let_in(limit.keyed(), limit.policy, zone.ahead, limit.began);
    if (!state) {
        return false;
    }
    limit.report = limit.ahead->prepare(limit, zone.ahead, hash);
    if (limit.report == nullptr) {
        answers.take_back(limit.keyed());
        return false;
    }
    limit.state = *state;
    return true;
}

void pass(AppliedLimit& limit, AheadReport& report) noexcept
{
    limit.decided = true;
    limit.source = Source::ahead;
    if (limit.settled_later) {
        AheadUnits::hold(report);
        limit.report = &report;
    }
    limit.ahead->add(report, limit.cost);
}

}  // namespace

bool pass_ahead(std::span<AppliedLimit> limits) noexcept
{
    const bool all = std::ranges::all_of(
        limits, [](AppliedLimit& limit) { return !limit.awaits_redis() || let_in(limit); });
    for (AppliedLimit& limit : limits) {
        AheadReport* const report = std::exchange(limit.report, nullptr);
        if (report != nullptr && all) {
            pass(limit, *report);
        } else if (report != nullptr) {
            limit.zone->memory().last_answers().take_back(limit.keyed());
            limit.ahead->drop(*report);
        }
    }
    return all;
}

void settle_ahead(const AppliedLimit& limit, std::int64_t cost) noexcept
{
    AheadUnits& units = *limit.ahead;
    if (cost < limit.cost) {
        units.give_back(*limit.report, limit.cost - cost);
        return;
    }
    AheadReport* const more =
        units.prepare(limit, limit.zone->ahead, units.hash_of(limit.redis_key));
    if (more != nullptr) {
        units.add(*more, cost - limit.cost);
    } else {
        redis::Client& client = limit.coalescer->client();
        Receipt receipt = limit;
        receipt.shard = client.shard_of(receipt.redis_key);  // no Check has set that of the limit
        settle(client, receipt, { limit.cost, {}, {} }, cost, limit.began);
    }
}

void end_ahead(AppliedLimit& limit) noexcept
{
    if (limit.report != nullptr) {
        limit.ahead->release(*std::exchange(limit.report, nullptr));
    }
}

void report_before_check(const AppliedLimit& limit) noexcept
{
    if (limit.ahead != nullptr) {
        limit.ahead->send_waiting(limit.redis_key);
    }
}

void note_answer(const AppliedLimit& limit, const NodeClock& clock) noexcept
{
    if (limit.ahead != nullptr) {
        const KeyAnswer answer{ limit.state.remaining, 0,           limit.state.reset,
                                limit.taken_at,        limit.began, clock.time_of(*limit.zone) };
        limit.zone->ahead_answered(limit, answer, limit.ahead->unanswered(limit.redis_key));
    }
}

}  // namespace ratelimit
