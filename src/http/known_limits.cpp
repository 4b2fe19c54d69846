#include "http/known_limits.h"

#include "nginx/clock.h"
#include "store/zone_memory.h"

#include <algorithm>
#include <cmath>
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

}  // namespace

bool refused_by_cache(RequestState& state) noexcept
{
    bool refused = false;
    const auto settled = [&](const RemoteCheck& check) {
        Limit& limit = state.limits[check.limit];
        DecidedLimit& decided = state.decided[check.limit];
        if (const auto refusal = refusal_of(limit, decided.policy, check)) {
            limit.known = true;
            decided.source = Source::cache;
            decided.state = *refusal;
            refused = refused || !decided.shadow;
        }
        return limit.known;
    };
    const auto end = std::remove_if(state.checks.begin(), state.checks.end(), settled);
    state.checks = { state.checks.begin(), end };
    return refused;
}

bool taken_from_leases(RequestState& state, std::int64_t& ahead) noexcept
{
    ahead = 0;
    const bool all_lease =
        std::all_of(state.checks.begin(), state.checks.end(), [&](const RemoteCheck& check) {
            const Limit& limit = state.limits[check.limit];
            return limit.zone->zone.lease > 0 && limit.cost > 0;
        });
    if (!all_lease) {
        return false;
    }
    bool all_taken = true;
    bool first = true;
    for (const RemoteCheck& check : state.checks) {
        Limit& limit = state.limits[check.limit];
        DecidedLimit& decided = state.decided[check.limit];
        const auto answer = leases_of(limit).take(
            { limit.key, limit.policy, limit.cost }, decided.policy, limit.zone->zone.lease,
            asked_at(check));
        // Only where nothing is left anywhere: what one limit has would pile up.
        ahead = first ? answer.ahead : std::min(ahead, answer.ahead);
        first = false;
        all_taken = all_taken && answer.state.has_value();
        if (answer.state) {
            limit.leased = answer.sent;
            decided.source = Source::lease;
            decided.state = *answer.state;
        }
    }
    if (!all_taken) {
        return_leases(state);
        return false;
    }
    for (const RemoteCheck& check : state.checks) {
        state.limits[check.limit].known = true;
    }
    return true;
}

void return_leases(RequestState& state) noexcept
{
    for (Limit& limit : state.limits) {
        if (const auto sent = std::exchange(limit.leased, std::nullopt)) {
            leases_of(limit).put_back({ limit.key, limit.policy, limit.cost }, *sent);
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
            { limit.key, limit.policy, limit.cost }, *check.state, asked_at(check), now_for(check),
            limit.zone->remembered);
}

void forget_refusals(const RequestState& state) noexcept
{
    for (const RemoteCheck& check : state.checks) {
        const Limit& limit = state.limits[check.limit];
        DenialCache denials = ZoneMemory(*limit.zone->memory).denials();
        if (check.state->granted && !denials.empty()) {
            denials.forget({ limit.key, limit.policy, limit.cost });
        }
    }
}

}  // namespace ratelimit::http
