#include "rehearse/count/rehearsal.h"

#include "limit/calendar.h"
#include "limit/delay.h"
#include "limit/key_hash.h"
#include "limit/rate_text.h"
#include "rehearse/count/key_hash.h"

namespace ratelimit::rehearse {

namespace {

/// A request that takes nothing is not delayed.
bool is_delayed(const Decider::Decided& limit, const LimitConf& conf)
{
    return limit.cost > 0 && !conf.nodelay
        && delay_of(limit.policy, limit.verdict, conf.delay.value_or(0)).count() > 0;
}

}  // namespace

Rehearsal::Rehearsal(
    const std::vector<ZoneConf>& zones, const std::vector<LimitConf>& limits,
    const Options& options, const RequestFacts& facts)
    : facts_(facts),
      decider_(zones, limits, options.busiest),
      results_(limits.size(), LimitResult(options.timeline))
{
    if (options.trace) {
        trace_.emplace(limits);
    }
}

/// Reads the rate of a zone. False: the limit does not apply.
bool Rehearsal::evaluate_rate(const PlannedLimit& limit, Values& values, AskedLimit& out)
{
    const Policy& policy = limit.conf->policy;
    if (limit.rate) {
        const std::string_view text = limit.rate->value(values, text_);
        if (text.empty()) {
            return false;
        }
        const auto rate = policy.calendar != nullptr ? parse_calendar_rate(text) : parse_rate(text);
        const bool log = traits_of(policy.algorithm).logs;
        if (!rate || (log && rate->quota > max_logged_quota)) {
            results_[limit.conf->number].malformed += again_ ? 0 : 1;
            return !limit.conf->shadow;
        }
        out.terms.rate = *rate;
    }
    out.terms.start_day = limit.start
        ? parse_start_day(limit.start->value(values, text_)).value_or(1)
        : policy.start_day;
    return true;
}

/// Reads key, rate and costs. False: the limit does not apply.
bool Rehearsal::evaluate(
    const PlannedLimit& limit, Values& values, std::string& key, AskedLimit& out)
{
    std::string_view text = limit.key.value(values, text_);
    if (text.empty()) {
        return false;
    }
    if (is_counted_as_hash(text, limit.zone->hash_key)) {
        key = key_hash(text);
    } else {
        key = text;
    }
    out.key = key;
    out.key_id = KeyTable::hash_of(key);
    out.number = limit.conf->number;
    if (!evaluate_rate(limit, values, out)) {
        return false;
    }
    out.cost = limit.conf->cost;
    if (limit.cost) {
        out.cost = parse_number(limit.cost->value(values, text_), 0, max_cost).value_or(1);
    }
    if (limit.charge) {
        out.charge = parse_number(limit.charge->value(values, text_), 0, max_cost).value_or(-1);
    }
    out.terms.reserve = limit.conf->reserve;
    if (limit.reserve) {
        out.terms.reserve = parse_reserve(limit.reserve->value(values, text_)).value_or(Reserve{});
    }
    return true;
}

void Rehearsal::evaluate(const Plan& plan, Values& values)
{
    asked_.clear();
    planned_.clear();
    if (keys_.size() < plan.limits.size()) {
        keys_.resize(plan.limits.size());
    }
    for (const PlannedLimit& limit : plan.limits) {
        AskedLimit asked;
        if (evaluate(limit, values, keys_[asked_.size()], asked)) {
            asked_.push_back(asked);
            planned_.push_back(&limit);
        }
    }
}

std::span<const AskedLimit> Rehearsal::asked_by(const Plan& plan, Values& values)
{
    again_ = true;
    evaluate(plan, values);
    again_ = false;
    return asked_;
}

bool Rehearsal::decide(const Plan& plan, Values& values, std::int64_t now)
{
    evaluate(plan, values);
    if (asked_.empty()) {
        return true;
    }
    const std::int64_t end = values.record().end;
    const bool passes = decider_.decide(asked_, now, end, plan.fails_closed);
    for (std::size_t i = 0; i < asked_.size(); ++i) {
        note(*planned_[i], decider_.decided()[i], values, now);
    }
    if (trace_) {
        trace_->add({ now, end, plan.fails_closed, facts_.succeeded(values), asked_ });
    }
    return passes;
}

void Rehearsal::note(
    const PlannedLimit& planned, const Decider::Decided& limit, Values& values, std::int64_t now)
{
    LimitResult& result = results_[planned.conf->number];
    result.note(now, limit.refused);
    if (!limit.check) {
        return;
    }
    result.delayed += is_delayed(limit, *planned.conf) ? 1 : 0;
    if (!planned.rate && (result.least_left < 0 || limit.verdict.remaining < result.least_left)) {
        result.least_left = limit.verdict.remaining;
    }
    if (limit.refused) {
        result.note_refusal(limit.key->text, now, values, facts_);
    }
}

}  // namespace ratelimit::rehearse
