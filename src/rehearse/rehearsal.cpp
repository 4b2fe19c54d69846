#include "rehearse/rehearsal.h"

#include "limit/calendar.h"
#include "limit/key_hash.h"
#include "limit/rate_text.h"
#include "limit/refill_time.h"
#include "rehearse/key_hash.h"

#include <algorithm>

namespace ratelimit::rehearse {

namespace {

constexpr std::size_t max_key_length = 128;  // as in the module: a longer key is hashed

/// As delay_of in src/zone.
bool is_delayed(
    const Policy& policy, const Verdict& verdict, const PlannedLimit& limit, std::int64_t cost)
{
    return traits_of(policy.algorithm).delays && limit.undelayed && cost > 0
        && verdict.reset > refill_time_ceil(1 + *limit.undelayed, policy.rate);
}

/// As Zone::record_of.
std::uint32_t record_of(const PlannedLimit& limit, const Policy& policy)
{
    if (policy.begin.count() != 0) {
        return policy.period_number;
    }
    return limit.variable_rate && !keeps_arrival_time(policy.algorithm)
        ? static_cast<std::uint32_t>(policy.rate.window / std::chrono::seconds{ 1 })
        : 0;
}

}  // namespace

Rehearsal::Rehearsal(
    const std::vector<ZoneConf>& zones, const std::vector<LimitTitle>& titles,
    const Options& options, const Evidence* evidence)
    : evidence_(evidence)
{
    std::vector<std::size_t> limits(zones.size());
    for (const LimitTitle& title : titles) {
        zone_of_.push_back(title.zone);
        place_of_.push_back(limits[title.zone]++);
        LimitResult& result = results_.emplace_back();
        result.minutes = Minutes(options.timeline);
        // With a reserve, other limits of the zone count for the same keys.
        if (options.traces && !title.variable_rate && title.reserve.empty()
            && title.start.empty()) {
            result.trace = std::make_unique<Trace>();
        }
    }
    for (std::size_t i = 0; i < zones.size(); ++i) {
        zones_.push_back(
            { zones[i].hash_key, KeyTable(zones[i].policy.algorithm, limits[i], options.busiest) });
    }
}

std::string_view Rehearsal::counted_key(std::size_t zone, std::string_view key)
{
    if (!zones_[zone].hash_key && key.size() <= max_key_length && !is_key_hash(key)) {
        return key;
    }
    hash_text_ = key_hash(key);
    return hash_text_;
}

/// Reads the rate, and finds the calendar period. False: the limit does not apply, or the rate is
/// malformed.
bool Rehearsal::evaluate_rate(
    const PlannedLimit& limit, Values& values, std::int64_t now, Applied& out)
{
    const bool calendar = out.policy.calendar != nullptr;
    if (limit.variable_rate) {
        const std::string_view text = limit.rate.value(values, rate_text_);
        if (text.empty()) {
            return false;
        }
        const auto rate = calendar ? parse_calendar_rate(text) : parse_rate(text);
        const bool log = traits_of(limit.policy.algorithm).logs;
        out.malformed = !rate || (log && rate->quota > max_logged_quota);
        if (out.malformed) {
            ++results_[limit.number].malformed;
            return false;
        }
        out.policy.rate = *rate;
    }
    if (limit.start) {
        out.policy.start_day = parse_start_day(limit.start->value(values, rate_text_)).value_or(1);
    }
    enter_period(out.policy, microseconds{ now });
    return true;
}

/// Reads key, rate and cost. False: the limit does not apply.
bool Rehearsal::evaluate(const PlannedLimit& limit, Values& values, std::int64_t now, Applied& out)
{
    const std::string_view key = limit.key.value(values, key_text_);
    if (key.empty()) {
        return false;
    }
    out.planned = &limit;
    out.policy = limit.policy;
    out.cost = limit.fixed_cost;
    out.malformed = false;
    if (!evaluate_rate(limit, values, now, out)) {
        return out.malformed && !limit.shadow;
    }
    if (limit.cost) {
        out.cost = parse_number(limit.cost->value(values, cost_text_), 0, max_cost).value_or(1);
    }
    Reserve reserve = limit.fixed_reserve;
    if (limit.reserve) {
        reserve = parse_reserve(limit.reserve->value(values, cost_text_)).value_or(Reserve{});
    }
    out.policy.reserve = reserve.of(out.policy.whole());
    out.key = &zones_[limit.zone].keys.find(counted_key(limit.zone, key), now);
    out.record = &zones_[limit.zone].keys.record_of(*out.key, record_of(limit, out.policy));
    return true;
}

void Rehearsal::evaluate(const Plan& plan, Values& values, std::int64_t now)
{
    applied_.clear();
    for (const PlannedLimit& limit : plan.limits) {
        applied_.emplace_back();
        if (!evaluate(limit, values, now, applied_.back())) {
            applied_.pop_back();
        }
    }
}

/// Whether the limit grants the request, as LocalLimiter decides it.
bool Rehearsal::check(Applied& limit, std::int64_t now, std::int64_t end)
{
    limit.blocked = microseconds{ std::max<std::int64_t>(limit.key->blocked_until - now, 0) };
    limit.check.emplace(
        limit.record->state, limit.policy, microseconds{ now }, limit.cost, microseconds{ end });
    return grants(limit);
}

bool Rehearsal::grants(const Applied& limit) noexcept
{
    return limit.check->granted() && (limit.cost == 0 || limit.blocked.count() == 0);
}

/// `refused`: by the limits that are not shadows. Such a refusal by this limit begins a block.
void Rehearsal::commit(Applied& limit, std::int64_t now, bool take, bool refused)
{
    const bool granted = grants(limit);
    limit.verdict = limit.check->commit(take && granted);
    limit.verdict.granted = granted;
    const std::int64_t block = limit.policy.block.count();
    if (refused && block > 0 && !granted && !limit.planned->shadow && limit.policy.reserve == 0
        && limit.blocked.count() == 0) {
        limit.key->blocked_until = now + block;
        limit.blocked = limit.policy.block;
    }
    apply_block(limit.verdict, limit.blocked);
    const std::int64_t expires =
        std::max(now + limit.check->life().count(), limit.key->blocked_until);
    limit.key->expires =
        limit.key->others.empty() ? expires : std::max(limit.key->expires, expires);
}

bool Rehearsal::decide(const Plan& plan, Values& values, std::int64_t now)
{
    evaluate(plan, values, now);
    const std::int64_t end = values.record().end;

    // Every check of all limits comes before any commit.
    bool take = true;
    bool failed = false;
    for (Applied& limit : applied_) {
        if (limit.malformed) {
            failed = failed || plan.fails_closed;
        } else {
            const bool granted = check(limit, now, end);
            take = take && (limit.planned->shadow || granted);
        }
    }
    take = take && !failed;
    for (Applied& limit : applied_) {
        if (limit.malformed) {
            note(limit, values, now, failed);
            continue;
        }
        commit(limit, now, take, !take && !failed);
        note(limit, values, now, !limit.verdict.granted);
        if (take && limit.planned->charge && limit.verdict.granted) {
            settle(limit, values, now);
        }
    }
    return take;
}

/// Settles `charge=` at once, because the log has one time for a request.
void Rehearsal::settle(Applied& limit, Values& values, std::int64_t now)
{
    const auto charge = parse_number(limit.planned->charge->value(values, cost_text_), 0, max_cost);
    if (!charge || *charge == limit.cost) {
        return;
    }
    if (*charge < limit.cost) {
        refund_state(
            limit.record->state, limit.policy, microseconds{ now },
            { limit.cost - *charge, microseconds{ now }, limit.verdict.reset });
        return;
    }
    std::int64_t more = *charge - limit.cost;
    if (traits_of(limit.policy.algorithm).logs) {
        more = std::min(more, limit.policy.whole());  // as settle_cost in src/zone
    }
    KeyCheck charged(
        limit.record->state, limit.policy, microseconds{ now }, more, microseconds{ now });
    charged.charge();
    limit.key->expires = std::max(limit.key->expires, now + charged.life().count());
}

void Rehearsal::note_refusal(const Applied& limit, Values& values, std::int64_t now)
{
    LimitResult& result = results_[limit.planned->number];
    result.succeeded += evidence_->succeeded(values) ? 1 : 0;
    result.refused_keys.add(limit.key->text, now, values, *evidence_);
}

void Rehearsal::note(const Applied& limit, Values& values, std::int64_t now, bool refused)
{
    LimitResult& result = results_[limit.planned->number];
    ++result.requests;
    result.refused += refused ? 1 : 0;
    result.minutes.add(now, refused);
    if (limit.malformed) {
        return;
    }
    result.delayed +=
        !refused && is_delayed(limit.policy, limit.verdict, *limit.planned, limit.cost) ? 1 : 0;
    if (!limit.planned->variable_rate
        && (result.least_left < 0 || limit.verdict.remaining < result.least_left)) {
        result.least_left = limit.verdict.remaining;
    }
    KeyCount& count =
        zones_[limit.planned->zone].keys.count(*limit.key, place_of_[limit.planned->number]);
    ++count.requests;
    count.refused += refused ? 1 : 0;
    if (refused && evidence_ != nullptr) {
        note_refusal(limit, values, now);
    }
    if (result.trace != nullptr) {
        result.trace->add({ now, values.record().end, limit.key->hash,
                            static_cast<std::int32_t>(limit.cost),
                            evidence_ != nullptr && evidence_->succeeded(values) });
    }
}

void Rehearsal::finish()
{
    for (LimitResult& result : results_) {
        result.minutes.finish();
    }
}

KeyTally::Numbers Rehearsal::numbers(std::size_t number) const
{
    return zones_[zone_of_[number]].keys.numbers(place_of_[number]);
}

std::vector<BusyKey> Rehearsal::busiest(std::size_t number) const
{
    return zones_[zone_of_[number]].keys.busiest(place_of_[number]);
}

bool Rehearsal::exact(std::size_t number) const
{
    return zones_[zone_of_[number]].keys.exact();
}

}  // namespace ratelimit::rehearse
