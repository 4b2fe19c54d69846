#include "rehearse/report/build_report.h"

#include "limit/address_form.h"
#include "limit/rate_text.h"
#include "rehearse/conf/address.h"
#include "rehearse/count/key_hash.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace ratelimit::rehearse {

namespace {

/// A key that is one binary address is shown as an address or network.
std::string shown_key(const std::string& key, const std::string& expression, unsigned ipv6_prefix)
{
    const auto form = address_form(expression, static_cast<std::uint8_t>(ipv6_prefix));
    std::string own;
    return printable(
        form && !form->is_text ? network_text(key, { form->ipv4_bits, form->ipv6_bits }, own)
                               : key);
}

std::string policy_text(const LimitConf& limit, const ZoneConf& zone)
{
    const Policy& policy = limit.policy;
    std::string reserve = limit.has_reserve() ? ", reserve " : "";
    if (limit.has_reserve()) {
        reserve += limit.reserve_text.empty() ? limit.reserve.text() : limit.reserve_text;
    }
    if (counts_at_one_time(policy.algorithm)) {
        return "concurrency, " + std::to_string(policy.rate.quota) + " at one time" + reserve;
    }
    std::string out(name_of(policy.algorithm));
    out += ", " + (limit.variable_rate() ? zone.rate_text : rate_text(policy.rate));
    if (zone.calendar != nullptr) {
        const std::string day = std::to_string(policy.start_day);
        const std::string& start = zone.start_text.empty() ? day : zone.start_text;
        out += " in " + zone.calendar->name + (start == "1" ? "" : " from day " + start);
    }
    if (policy.burst) {
        out += ", burst " + std::to_string(*policy.burst);
    }
    if (policy.block.count() > 0) {
        out += ", block " + std::to_string(policy.block / std::chrono::seconds{ 1 }) + "s";
    }
    return out + reserve;
}

void add_suggestion(
    ZoneReplay& replay, const Rate& rate, double share, std::vector<LimitReport>& limits)
{
    std::vector<std::uint64_t> keys;
    for (const std::size_t number : replay.limits()) {
        keys.push_back(limits[number].keys.keys);
    }
    const auto found = replay.suggest(share, keys);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        LimitReport& limit = limits[replay.limits()[i]];
        SuggestedQuota& suggested = limit.suggested.emplace();
        if (!found) {
            continue;
        }
        suggested.quota = found->quota;
        suggested.alone = keys.size() == 1;
        suggested.keys_refused = found->refusals[i].keys;
        if (!counts_at_one_time(limit.configured.algorithm)) {
            Rate other = rate;
            other.quota = found->quota;
            suggested.rate = rate_text(other);
        }
    }
}

}  // namespace

void add_quotas(
    Rehearsed& subject, std::optional<double> share, bool curves, std::vector<LimitReport>& limits)
{
    const HttpConf& conf = subject.conf();
    Trace* trace = subject.rehearsal().trace();
    for (std::size_t zone = 0; trace != nullptr && zone < conf.zones.size(); ++zone) {
        ZoneReplay replay(*trace, conf.zones, conf.limits, zone);
        if (conf.zones[zone].variable_rate() || replay.limits().empty()) {
            continue;
        }
        if (share) {
            add_suggestion(replay, conf.zones[zone].policy.rate, *share, limits);
        }
        const auto curve = curves ? replay.curve() : decltype(replay.curve())();
        for (const auto& [quota, refusals] : curve) {
            for (std::size_t i = 0; i < refusals.size(); ++i) {
                limits[replay.limits()[i]].curve.push_back({ quota, refusals[i] });
            }
        }
    }
}

namespace {

/// Where a limit is written. With one server its locations are named as they are written; with
/// several, the server comes first.
std::string title_of(const WrittenLimit& limit, const HttpConf& conf)
{
    if (!limit.server) {
        return limit.location;
    }
    const std::string server = conf.servers[*limit.server]->title();
    if (limit.location == "server") {
        return server.empty() ? "server" : "server " + server;
    }
    return conf.servers.size() > 1 ? server + " " + limit.location : limit.location;
}

/// Adds what the module's limits and nginx's have in common, and makes the busiest keys printable.
template <class Limit, class Zone>
void describe(
    LimitReport& out, const Rehearsed& subject, const Limit& limit, const Zone& zone,
    std::size_t busiest)
{
    const HttpConf& conf = subject.conf();
    out.zone = zone.name;
    out.location = title_of(limit, conf);
    out.policy = policy_text(limit, zone);
    out.other_server = subject.site().by_name() && limit.server
        && conf.servers[*limit.server].get() != subject.site().only();
    out.refused_keys = out.result->refused_keys.list(busiest);
    for (RefusedKey& one : out.refused_keys) {
        one.key = shown_key(one.key, zone.key, conf.definitions.ipv6_prefix);
    }
    for (BusyKey& one : out.busiest) {
        one.key = shown_key(one.key, zone.key, conf.definitions.ipv6_prefix);
    }
}

}  // namespace

LimitReport limit_report(Rehearsed& subject, const LimitConf& limit, std::size_t busiest)
{
    const Decider& decider = subject.rehearsal().decider();
    LimitReport out;
    out.result = &subject.rehearsal().results()[limit.number];
    out.keys = decider.numbers(limit.number);
    out.exact = decider.exact(limit.number);
    out.busiest = decider.busiest(limit.number);
    out.shadow = limit.shadow;
    out.configured = limit.policy;
    out.limit = limit.variable_rate() ? 0 : limit.policy.limit();
    describe(out, subject, limit, subject.conf().zones[limit.zone], busiest);
    return out;
}

LimitReport limit_report(const Rehearsed& subject, const LimitReqConf& limit, std::size_t busiest)
{
    const LimitReqResult& result = subject.limit_reqs().results()[limit.number];
    LimitReport out;
    out.result = &result;
    out.keys = result.keys.numbers(0);
    out.exact = result.keys.exact();
    out.busiest = result.busiest.list(busiest);
    out.of_nginx = true;
    out.shadow = limit.dry_run;
    describe(out, subject, limit, subject.conf().limit_req_zones[limit.zone], busiest);
    return out;
}

/// The directive that concerns most requests is first.
void warn_of_doubts(const Rehearsed& subject, std::vector<std::string>& out)
{
    const auto& doubts = subject.doubts();
    std::vector<std::pair<const Directive*, std::uint64_t>> sorted(doubts.begin(), doubts.end());
    std::ranges::sort(sorted, std::ranges::greater{}, [](const auto& one) {
        return std::tuple(one.second, one.first->place.text());
    });
    for (const auto& [directive, requests] : sorted) {
        const std::string count = std::to_string(requests) + " requests";
        const std::string place = directive->place.text();
        std::string& warning = out.emplace_back();
        if (directive->name == "server") {
            warning.append("the server in ")
                .append(place)
                .append(" may have answered ")
                .append(count);
            warning.append(" with a redirect (log $scheme to know)");
        } else {
            warning.append("\"").append(directive->name).append("\" in ").append(place);
            warning.append(": the log does not tell of ").append(count);
            const std::string& name = directive->name;
            const bool refuses = name == "limit_conn" || name.starts_with("auth_");
            warning.append(
                name == "error_page" ? " whether there was the error"
                    : refuses        ? " whether it refused them"
                                     : " which files exist");
            warning.append(
                subject.facts().upstream_status != nullptr ? ""
                                                           : " (log $upstream_status to know)");
        }
    }
    const Rehearsed::Unexplained& odd = subject.unexplained();
    if (odd.requests > 0) {
        out.push_back(
            std::to_string(odd.requests) + " requests, the first of which is "
            + printable(odd.first)
            + ", went a way that the configuration does not show: which limits they met is not "
              "known");
    }
}

TotalReport total_report(
    const Rehearsed& subject, const KeyTally& clients, std::size_t number, std::size_t busiest)
{
    TotalReport out{ &subject, clients.numbers(number), clients.exact(),
                     subject.totals().refused_keys.list(busiest) };
    for (RefusedKey& one : out.refused_clients) {
        one.key = printable(one.key);
    }
    return out;
}

}  // namespace ratelimit::rehearse
