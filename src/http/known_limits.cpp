#include "http/known_limits.h"

#include "nginx/clock.h"
#include "store/zone_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ratelimit::http {

namespace {

using Limit = RequestState::Limit;

/// When it was asked for, at the latest. The clock of what is remembered is that of the decision
/// where that is this node's.
microseconds asked_at(const RemoteCheck& check) noexcept
{
    return check.now.value_or(check.asked);
}

microseconds now_for(const RemoteCheck& check) noexcept
{
    return check.now ? nginx::local_time() : nginx::monotonic_time();
}

TokenLeases leases_of(const Limit& limit) noexcept
{
    return ZoneMemory(*limit.zone->memory).leases();
}

/// By how much a request that costs so much more has to wait longer, at least; exactly, for the
/// algorithms that keep an arrival time.
microseconds longer_for(const Policy& policy, std::int64_t cost) noexcept
{
    if (!keeps_arrival_time(policy.algorithm)) {
        return microseconds{ 0 };
    }
    const double time = static_cast<double>(cost) * static_cast<double>(policy.rate.window.count())
        / static_cast<double>(policy.rate.quota);
    return microseconds{ static_cast<std::int64_t>(std::ceil(time)) };
}

/// Empty: it is not cached, or not known.
std::optional<LimitState> refusal_of(
    const Limit& limit, const Policy& policy, const RemoteCheck& check) noexcept
{
    DenialCache denials = ZoneMemory(*limit.zone->memory).denials();
    if (!limit.zone->zone.cache || limit.cost == 0 || denials.empty()) {
        return std::nullopt;
    }
    auto denial = denials.find({ limit.key, limit.policy, limit.cost }, asked_at(check));
    if (!denial) {
        return std::nullopt;
    }
    if (limit.cost > policy.limit()) {
        denial->state.retry_after.reset();  // never, though a smaller cost was
    } else {
        *denial->state.retry_after += longer_for(policy, limit.cost - denial->cost);
    }
    return denial->state;
}

/// Takes out of what is to be asked the limits that `settled` has decided.
template <class Settled>
void settle_some(RequestState& state, Settled&& settled) noexcept
{
    const auto end =
        std::remove_if(state.checks.begin(), state.checks.end(), [&](const RemoteCheck& check) {
            Limit& limit = state.limits[check.limit];
            limit.known = settled(check, limit, state.decided[check.limit]);
            return limit.known;
        });
    state.checks = { state.checks.begin(), end };
}

}  // namespace

bool refused_by_cache(RequestState& state) noexcept
{
    bool refused = false;
    settle_some(state, [&](const RemoteCheck& check, Limit& limit, DecidedLimit& decided) {
        const auto refusal = refusal_of(limit, decided.policy, check);
        if (!refusal) {
            return false;
        }
        decided.source = Source::cache;
        decided.state = *refusal;
        refused = refused || !decided.shadow;
        return true;
    });
    return refused;
}

void take_from_leases(RequestState& state) noexcept
{
    settle_some(state, [](const RemoteCheck& check, Limit& limit, DecidedLimit& decided) {
        if (limit.zone->zone.lease == 0 || limit.cost == 0) {
            return false;
        }
        const auto answer = leases_of(limit).spend(
            { limit.key, limit.policy, limit.cost }, decided.policy, limit.zone->zone.lease,
            asked_at(check));
        limit.ahead = answer.worth_leasing;
        if (!answer.state) {
            return false;
        }
        limit.leased = answer.source;
        decided.source = Source::lease;
        decided.state = *answer.state;
        return true;
    });
}

std::int64_t wanted_ahead(const RequestState& state) noexcept
{
    std::int64_t wanted = std::numeric_limits<std::int64_t>::max();
    for (const RemoteCheck& check : state.checks) {
        wanted = std::min(wanted, state.limits[check.limit].ahead);
    }
    return wanted;
}

void return_leases(RequestState& state) noexcept
{
    for (std::size_t i = 0; i < state.limits.size(); ++i) {
        Limit& limit = state.limits[i];
        if (const auto source = std::exchange(limit.leased, std::nullopt)) {
            leases_of(limit).refund({ limit.key, limit.policy, limit.cost }, *source);
            put_back(state.decided[i].state, state.decided[i].policy, limit.cost);
        }
    }
}

void keep_leases(
    const RequestState& state, std::span<const RemoteCheck> checks,
    std::span<const BatchAnswer> answers, std::int64_t spent) noexcept
{
    for (std::size_t i = 0; i < checks.size(); ++i) {
        const Limit& limit = state.limits[checks[i].limit];
        if (answers[i].taken > spent) {  // a shadow limit may have let in fewer
            leases_of(limit).add(
                { limit.key, limit.policy, limit.cost }, state.decided[checks[i].limit].policy,
                answers[i], answers[i].taken - spent, asked_at(checks[i]));
        }
    }
}

void remember_refusal(const RequestState& state, const RemoteCheck& check) noexcept
{
    const Limit& limit = state.limits[check.limit];
    // Of what was taken ahead, the time of its decision is not known.
    if (check.state->granted || check.leased || !limit.zone->zone.cache) {
        return;
    }
    ZoneMemory(*limit.zone->memory)
        .denials()
        .add(
            { limit.key, limit.policy, limit.cost }, check.coalescer->client().server_of(check.key),
            *check.state, asked_at(check), now_for(check), limit.zone->remembered);
}

void forget_refusals(const RequestState& state, const RemoteCheck& check) noexcept
{
    const Limit& limit = state.limits[check.limit];
    DenialCache denials = ZoneMemory(*limit.zone->memory).denials();
    if (check.state->granted && limit.cost > 0 && limit.zone->remembered < DenialCache::longest
        && !denials.empty()) {
        denials.forget_key(limit.key);
    }
}

}  // namespace ratelimit::http
