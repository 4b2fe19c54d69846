#include "rehearse/build_report.h"

#include "limit/address_form.h"
#include "limit/rate_text.h"
#include "rehearse/address.h"
#include "rehearse/key_hash.h"

#include <algorithm>
#include <limits>

namespace ratelimit::rehearse {

namespace {

/// A key that is one binary address is shown as an address or network.
std::string shown_key(const std::string& key, const std::string& expression, unsigned ipv6_prefix)
{
    const auto form = address_form(expression, static_cast<std::uint8_t>(ipv6_prefix));
    const std::string text = form && !form->is_text ? address_text(key) : std::string();
    if (text.empty()) {
        return printable(key);
    }
    const bool ipv4 = key.size() == 4;
    const unsigned kept = ipv4 ? form->ipv4_bits : form->ipv6_bits;
    constexpr NetworkBits whole;
    return kept == (ipv4 ? whole.ipv4 : whole.ipv6) ? text : text + "/" + std::to_string(kept);
}

std::string policy_text(const LimitTitle& title, const ZoneConf& zone)
{
    const std::string reserve = title.reserve.empty() ? "" : ", reserve " + title.reserve;
    if (counts_at_one_time(title.policy.algorithm)) {
        return "concurrency, " + std::to_string(title.policy.rate.quota) + " at one time" + reserve;
    }
    std::string out(name_of(title.policy.algorithm));
    out += ", " + (title.variable_rate ? zone.rate_text : rate_text(title.policy.rate));
    if (zone.calendar != nullptr) {
        const std::string day = std::to_string(title.policy.start_day);
        const std::string& start = title.start.empty() ? day : title.start;
        out += " in " + zone.calendar->name + (start == "1" ? "" : " from day " + start);
    }
    if (title.policy.burst) {
        out += ", burst " + std::to_string(*title.policy.burst);
    }
    if (title.policy.block.count() > 0) {
        out += ", block " + std::to_string(title.policy.block / std::chrono::seconds{ 1 }) + "s";
    }
    return out + reserve;
}

void add_quotas(
    Trace& trace, const Policy& policy, std::uint64_t keys, const ReportOptions& options,
    LimitReport& out)
{
    if (options.share) {
        LimitReport::Suggested suggested;
        suggested.quota = suggest(trace, policy, *options.share, keys);
        if (suggested.quota && !counts_at_one_time(policy.algorithm)) {
            Rate rate = policy.rate;
            rate.quota = suggested.quota->quota;
            suggested.rate = rate_text(rate);
        }
        out.suggested = suggested;
    }
    if (options.curves) {
        out.curve = curve_of(trace, policy);
    }
}

}  // namespace

LimitReport limit_report(Rehearsed& subject, std::size_t number, const ReportOptions& options)
{
    const HttpConf& conf = subject.conf();
    Rehearsal& rehearsal = subject.rehearsal();
    const LimitTitle& title = conf.titles[number];
    const ZoneConf& zone = conf.zones[title.zone];
    LimitResult& result = rehearsal.results()[number];
    const auto keys = rehearsal.numbers(number);
    LimitReport out;
    out.zone = zone.name;
    out.location = title.location;
    out.policy = policy_text(title, zone);
    out.shadow = title.shadow;
    out.other_server = options.one_server && title.server
        && conf.servers[*title.server].get() != subject.site().only();
    out.configured = title.policy;
    out.limit = title.variable_rate ? 0 : title.policy.limit();
    out.requests = result.requests;
    out.refused = result.refused;
    out.delayed = result.delayed;
    out.malformed = result.malformed;
    out.keys = keys.keys;
    out.keys_refused = keys.keys_refused;
    out.exact = rehearsal.exact(number);
    out.least_left = result.least_left;
    out.worst = result.minutes.worst();
    out.minutes = &result.minutes.all();
    out.busiest = rehearsal.busiest(number);
    for (BusyKey& busy : out.busiest) {
        busy.key = shown_key(busy.key, zone.key, conf.definitions.ipv6_prefix);
    }
    out.succeeded = result.succeeded;
    out.refused_keys = result.refused_keys.list(options.busiest);
    for (RefusedKey& one : out.refused_keys) {
        one.key = shown_key(one.key, zone.key, conf.definitions.ipv6_prefix);
    }
    if (result.trace != nullptr) {
        add_quotas(*result.trace, title.policy, keys.keys, options, out);
    }
    return out;
}

LimitReport limit_req_report(
    const Rehearsed& subject, std::size_t number, const ReportOptions& options)
{
    const HttpConf& conf = subject.conf();
    const LimitReqTitle& title = conf.limit_req_titles[number];
    const LimitReqZone& zone = conf.limit_req_zones[title.zone];
    const LimitReqResult& result = subject.limit_reqs().results()[number];
    const auto keys = result.keys.numbers(0);
    LimitReport out;
    out.zone = zone.name;
    out.location = title.location;
    out.policy = title.policy;
    out.of_nginx = true;
    out.shadow = title.dry_run;
    out.other_server = options.one_server && title.server
        && conf.servers[*title.server].get() != subject.site().only();
    out.requests = result.counts.requests;
    out.refused = result.counts.refused;
    out.succeeded = result.counts.succeeded;
    out.delayed = result.counts.delayed;
    out.keys = keys.keys;
    out.keys_refused = keys.keys_refused;
    out.exact = result.keys.exact();
    out.worst = result.counts.minutes.worst();
    out.minutes = &result.counts.minutes.all();
    out.busiest = result.busiest.list();
    for (BusyKey& busy : out.busiest) {
        busy.key = shown_key(busy.key, zone.key, conf.definitions.ipv6_prefix);
    }
    out.refused_keys = result.counts.refused_keys.list(options.busiest);
    for (RefusedKey& one : out.refused_keys) {
        one.key = shown_key(one.key, zone.key, conf.definitions.ipv6_prefix);
    }
    return out;
}

TotalReport total_report(
    Rehearsed& subject, const KeyTally* clients, std::size_t number, std::size_t busiest)
{
    const Totals& totals = subject.totals();
    TotalReport out;
    out.requests = totals.requests;
    out.refused = totals.refused;
    out.succeeded = totals.succeeded;
    out.has_status = subject.evidence().has_status();
    if (clients != nullptr) {
        const auto numbers = clients->numbers(number);
        out.clients = numbers.keys;
        out.clients_refused = numbers.keys_refused;
        out.exact = clients->exact();
        out.has_clients = true;
    }
    out.refused_clients = totals.clients.list(busiest);
    for (RefusedKey& one : out.refused_clients) {
        one.key = printable(one.key);
    }
    return out;
}

std::vector<CurvePoint> curve_of(Trace& trace, const Policy& policy)
{
    constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
    constexpr std::size_t most_points = 60;
    const std::int64_t largest = traits_of(policy.algorithm).most_quota;
    const auto point = [&](std::int64_t quota) {
        Policy other = policy;
        other.rate.quota = quota;
        return CurvePoint{ quota, replay(trace, other, any).value_or(Refusals{}) };
    };
    std::vector<CurvePoint> out;
    // Steps of about a fifth, as long as something is refused.
    for (std::int64_t quota = 1;; quota = std::max(quota + 1, quota + quota / 5)) {
        out.push_back(point(std::min(quota, largest)));
        if (out.back().refusals.keys == 0 || quota >= largest || out.size() >= most_points) {
            break;
        }
    }
    const auto at = std::lower_bound(
        out.begin(), out.end(), policy.rate.quota,
        [](const CurvePoint& one, std::int64_t quota) { return one.quota < quota; });
    if (at == out.end() || at->quota != policy.rate.quota) {
        out.insert(at, point(policy.rate.quota));
    }
    return out;
}

}  // namespace ratelimit::rehearse
