#include "rehearse/count/decider.h"

#include "limit/calendar.h"
#include "limit/refund.h"

#include <algorithm>

namespace ratelimit::rehearse {

Decider::Decider(
    const std::vector<ZoneConf>& zones, const std::vector<LimitConf>& limits, std::size_t busiest)
    : limits_(limits)
{
    std::vector<std::size_t> counts(zones.size());
    for (const LimitConf& limit : limits) {
        ++counts[limit.zone];
    }
    for (std::size_t i = 0; i < zones.size(); ++i) {
        zones_.emplace_back(zones[i].policy.algorithm, counts[i], busiest);
    }
}

void Decider::set_rate(std::size_t zone, const Rate& rate)
{
    for (LimitConf& limit : limits_) {
        if (limit.zone == zone) {
            limit.policy.rate = rate;
        }
    }
}

/// Finds the key, and checks it.
void Decider::prepare(const AskedLimit& asked, std::int64_t now, std::int64_t end, Decided& out)
{
    const LimitConf& limit = limits_[asked.number];
    out.policy = limit.policy;
    out.cost = asked.cost;
    if (limit.variable_rate()) {
        out.policy.rate = asked.terms.rate;
    }
    out.policy.start_day = asked.terms.start_day;
    enter_period(out.policy, microseconds{ now });
    out.policy.reserve = asked.terms.reserve.of(out.policy.whole());
    KeyTable& keys = zones_[limit.zone];
    out.key = &keys.find(asked.key, asked.key_id, now);
    out.count = &keys.count(*out.key, limit.number_in_zone);
    out.record = &keys.record_of(*out.key, out.policy.record(limit.variable_rate()));
    out.blocked = microseconds{ std::max<std::int64_t>(out.key->blocked_until - now, 0) };
    out.check.emplace(
        out.record->state, out.policy, microseconds{ now }, out.cost, microseconds{ end });
}

/// Counts the request if all limits that are no shadows grant it (`take`), and this one does.
void Decider::commit(const AskedLimit& asked, Decided& limit, std::int64_t now, bool take)
{
    const bool granted = limit.grants();
    limit.verdict = limit.check->commit(take && granted);
    limit.verdict.granted = granted;
    limit.refused = !granted;
    const std::int64_t expires =
        std::max(now + limit.check->life().count(), limit.key->blocked_until);
    limit.key->expires =
        limit.key->others.empty() ? expires : std::max(limit.key->expires, expires);
    if (take && granted && asked.charge >= 0 && asked.charge != limit.cost) {
        settle(asked, limit, now);
    }
}

/// Whether a key that is not blocked yet is blocked from now on.
bool Decider::begins_block(const AskedLimit& asked, const Decided& limit, bool take) const
{
    return !take && !failed_ && limit.policy.block.count() > 0 && !is_shadow(asked)
        && limit.policy.reserve == 0 && !limit.check->granted();
}

void Decider::begin_block(Decided& limit, std::int64_t now)
{
    limit.blocked = limit.policy.block;
    limit.key->blocked_until = now + limit.policy.block.count();
    limit.key->expires = std::max(limit.key->expires, limit.key->blocked_until);
}

/// Settles `charge=` at once, because the log has one time for a request.
void Decider::settle(const AskedLimit& asked, Decided& limit, std::int64_t now)
{
    if (asked.charge < limit.cost) {
        refund_state(
            limit.record->state, limit.policy, microseconds{ now },
            { limit.cost - asked.charge, microseconds{ now }, limit.verdict.reset });
        return;
    }
    const std::int64_t more = settled_cost(limit.policy, limit.cost, asked.charge) - limit.cost;
    KeyCheck charged(
        limit.record->state, limit.policy, microseconds{ now }, more, microseconds{ now });
    charged.charge();
    limit.key->expires = std::max(limit.key->expires, now + charged.life().count());
}

bool Decider::check(
    std::span<const AskedLimit> asked, std::int64_t now, std::int64_t end, bool fails_closed)
{
    const auto is_malformed = [&](const AskedLimit& one) {
        return limits_[one.number].variable_rate() && one.terms.rate.quota == 0;
    };
    decided_.clear();
    decided_.resize(asked.size());
    bool take = true;
    failed_ = false;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        if (is_malformed(asked[i])) {
            failed_ = failed_ || fails_closed;
        } else {
            prepare(asked[i], now, end, decided_[i]);
            take = take && (is_shadow(asked[i]) || decided_[i].grants());
        }
    }
    return take && !failed_;
}

bool Decider::decide(
    std::span<const AskedLimit> asked, std::int64_t now, std::int64_t end, bool fails_closed)
{
    // Every check of all limits comes before any commit.
    const bool take = check(asked, now, end, fails_closed);
    for (std::size_t i = 0; i < asked.size(); ++i) {
        Decided& limit = decided_[i];
        if (!limit.check) {
            limit.refused = failed_;
            continue;
        }
        commit(asked[i], limit, now, take);
        if (limit.blocked.count() == 0 && begins_block(asked[i], limit, take)) {
            begin_block(limit, now);
        }
        apply_block(limit.verdict, limit.blocked);
        ++limit.count->requests;
        limit.count->refused += limit.refused ? 1 : 0;
    }
    return take;
}

}  // namespace ratelimit::rehearse
