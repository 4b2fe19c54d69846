#include "rehearse/count/suggestion.h"

#include <algorithm>
#include <cmath>

namespace ratelimit::rehearse {

ZoneReplay::ZoneReplay(
    Trace& trace, const std::vector<ZoneConf>& zones, const std::vector<LimitConf>& confs,
    std::size_t zone)
    : trace_(trace), zones_(zones), confs_(confs), zone_(zone)
{
    for (const LimitConf& limit : confs) {
        if (limit.zone == zone) {
            limits_.push_back(limit.number);
        }
    }
}

bool ZoneReplay::fits(const Rate& rate) const
{
    const ZoneConf& zone = zones_[zone_];
    Policy policy = zone.policy;
    policy.rate = rate;
    const LimitedZone limited{ &policy, zone.ahead > 0, zone.lease > 0 };
    return policy.possible() && policy.limit() >= zone.ahead
        && std::all_of(limits_.begin(), limits_.end(), [&](std::size_t number) {
               return !check_limit(confs_[number], limited);
           });
}

std::optional<std::vector<Refusals>> ZoneReplay::with(
    const Rate& rate, const std::vector<std::uint64_t>& most)
{
    if (!fits(rate)) {
        return std::nullopt;
    }
    Decider decider(zones_, confs_, 0);
    decider.set_rate(zone_, rate);
    std::vector<Refusals> out(limits_.size());
    bool too_many = false;
    trace_.replay(zone_, [&](const Trace::Request& request) {
        decider.decide(request.asked, request.time, request.end, request.fails_closed);
        for (std::size_t i = 0; i < request.asked.size(); ++i) {
            const Decider::Decided& limit = decider.decided()[i];
            const LimitConf& conf = confs_[request.asked[i].number];
            if (conf.zone != zone_ || !limit.refused) {
                continue;
            }
            const std::size_t index = conf.number_in_zone;
            ++out[index].requests;
            out[index].succeeded += request.succeeded ? 1 : 0;
            out[index].keys += limit.count->refused == 1 ? 1 : 0;
            // Beyond KeyTally::most this counts keys again that were forgotten.
            too_many = too_many
                || (!most.empty() && out[index].keys > most[index] && decider.exact(conf.number));
        }
        return !too_many;
    });
    for (std::size_t i = 0; i < limits_.size() && !too_many; ++i) {
        out[i].keys = decider.numbers(limits_[i]).keys_refused;
        too_many = !most.empty() && out[i].keys > most[i];
    }
    return too_many ? std::nullopt : std::optional(std::move(out));
}

std::optional<std::vector<Refusals>> ZoneReplay::with_quota(
    std::int64_t quota, const std::vector<std::uint64_t>& most)
{
    Rate rate = zones_[zone_].policy.rate;
    rate.quota = quota;
    return with(rate, most);
}

std::optional<ZoneReplay::Point> ZoneReplay::suggest(
    double share, const std::vector<std::uint64_t>& keys)
{
    std::vector<std::uint64_t> most;
    most.reserve(keys.size());
    for (const std::uint64_t count : keys) {
        most.push_back(static_cast<std::uint64_t>(std::floor(share * static_cast<double>(count))));
    }
    const Policy& policy = zones_[zone_].policy;
    const std::int64_t largest = traits_of(policy.algorithm).most_quota;
    std::int64_t too_small = 0;
    Point best;
    std::int64_t quota = policy.rate.quota;
    for (;;) {  // upwards until one is large enough
        if (auto refused = with_quota(quota, most)) {
            best = { quota, std::move(*refused) };
            break;
        }
        if (quota == largest) {
            return std::nullopt;
        }
        too_small = quota;
        quota = quota > largest / 4 ? largest : quota * 4;
    }
    while (best.quota - too_small > 1) {
        // Small quotas end a replay early, so the search looks for one of them first.
        const std::int64_t middle =
            too_small == 0 ? (best.quota + 3) / 4 : too_small + (best.quota - too_small) / 2;
        if (auto refused = with_quota(middle, most)) {
            best = { middle, std::move(*refused) };
        } else {
            too_small = middle;
        }
    }
    return best;
}

std::map<std::int64_t, std::vector<Refusals>> ZoneReplay::curve()
{
    constexpr std::size_t most_points = 60;
    const Policy& policy = zones_[zone_].policy;
    const std::int64_t largest = traits_of(policy.algorithm).most_quota;
    std::map<std::int64_t, std::vector<Refusals>> out;
    const auto add = [&](std::int64_t quota) {
        if (auto refused = out.contains(quota) ? std::nullopt : with_quota(quota)) {
            out.emplace(quota, std::move(*refused));
        }
    };
    // Steps of about a fifth, as long as something is refused.
    for (std::int64_t quota = 1; out.size() < most_points;
         quota = std::max(quota + 1, quota + quota / 5)) {
        add(std::min(quota, largest));
        const bool refuses = out.empty()
            || std::any_of(out.rbegin()->second.begin(), out.rbegin()->second.end(),
                           [](const Refusals& one) { return one.keys > 0; });
        if (!refuses || quota >= largest) {
            break;
        }
    }
    add(policy.rate.quota);
    return out;
}

}  // namespace ratelimit::rehearse
