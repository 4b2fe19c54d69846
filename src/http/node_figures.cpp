#include "http/node_figures.h"

#include "base/hash.h"
#include "base/version.h"
#include "http/decision_count.h"
#include "limit/percent_text.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace ratelimit::http {

namespace {

/// " calendar=Europe/Berlin start=15" as far as it is given.
std::string calendar_text(const ZoneConf& zone)
{
    if (zone.calendar == nullptr) {
        return {};
    }
    const std::string day = std::to_string(zone.zone.policy.start_day);
    const std::string& start = zone.start_text.empty() ? day : zone.start_text;
    return " calendar=" + zone.calendar->name + (start == "1" ? "" : " start=" + start);
}

/// What a zone allows, for people.
std::string limit_text(const ZoneConf& zone)
{
    const Policy& policy = zone.zone.policy;
    if (counts_at_one_time(policy.algorithm)) {
        return std::to_string(policy.rate.quota) + " at one time";
    }
    return zone.rate_text + calendar_text(zone)
        + (policy.burst ? " burst=" + std::to_string(*policy.burst) : "");
}

/// Where the zone's keys are. Servers other than a ring's may have another address on each node.
std::string storage_of(const ZoneConf& zone)
{
    if (zone.redis == nullptr) {
        return "memory";
    }
    const auto& options = zone.redis->options;
    const bool ring = options.topology == redis::Topology::ring && options.servers.size() > 1;
    return zone.zone.key_start
        + (ring ? zone.redis->storage()
                : std::to_string(static_cast<int>(options.topology)) + "/"
                   + std::to_string(options.server.database));
}

/// The values of fleet::setting_names, without the rate's quota and window.
std::array<std::string, fleet::setting_names.size()> values_of(const ZoneConf& zone)
{
    const Policy& policy = zone.zone.policy;
    const auto number = [](auto value) { return std::to_string(value); };
    return {
        zone.key_text,
        std::string(name_of(policy.algorithm)),
        zone.rate_text + calendar_text(zone),
        storage_of(zone),
        number(policy.burst.value_or(-1)),
        number(zone.variable_rate() ? 0 : policy.bucket_width().count()),
        number(policy.block.count()),
        number(static_cast<int>(zone.hash_key)),
        number(static_cast<int>(zone.zone.clock)),
        number(static_cast<int>(zone.zone.cache)),
        number(zone.zone.lease),
        number(zone.zone.nodes),
        number(zone.zone.ahead),
    };
}

/// fleet::NodeReport::Zone::each_setting.
std::string each_setting(const ZoneConf& zone)
{
    const Rate& rate = zone.zone.policy.rate;
    auto values = values_of(zone);
    values[2] += "\n" + std::to_string(rate.quota) + "\n" + std::to_string(rate.window.count());
    std::string all;
    for (const std::string& value : values) {
        std::array<char, fleet::digits_of_setting + 1> digits{};
        constexpr std::uint64_t most = 0xfff;  // of the digits
        std::snprintf(
            digits.data(), digits.size(), "%03x", static_cast<unsigned>(fnv1a(value) & most));
        all += digits.data();
    }
    return all;
}

fleet::NodeReport::Zone zone_figures(const ZoneConf& zone)
{
    const History::Values totals = history_totals(zone.zone.memory());
    return { zone.zone.name,
             settings_digest(zone),
             limit_text(zone),
             totals[History::passed],
             totals[History::refused],
             static_cast<std::uint64_t>(zone.zone.ahead) * worker_count(),
             highest_use_of_an_hour(zone.zone.memory()),
             each_setting(zone),
             totals[History::would_refuse] };
}

/// What the node's requests were in each of the last steps of a scale. `kept`: in steps of
/// `kept_s`, of which one of the scale has several.
fleet::NodeHistory history_of(
    const History::Steps& kept, std::int64_t kept_s, const fleet::HistoryScale& scale)
{
    const auto step = static_cast<std::int64_t>(scale.step_s);
    const std::int64_t last = kept.start + (std::ssize(kept.values) - 1) * kept_s;
    const std::int64_t first =
        std::max(kept.start / step, last / step + 1 - static_cast<std::int64_t>(scale.steps));
    fleet::NodeHistory history;
    history.start = static_cast<std::uint64_t>(first * step);
    std::int64_t time = kept.start;
    for (const History::Values& values : kept.values) {
        if (time >= first * step && values[History::passed] != History::unknown) {
            const auto at = static_cast<std::size_t>(time / step - first);
            history.passed.resize(at + 1);
            history.refused.resize(at + 1);
            history.passed[at] += values[History::passed];
            history.refused[at] += values[History::refused];
            if (values[History::undecided] > 0) {
                history.undecided.resize(at + 1);
                history.undecided[at] += values[History::undecided];
            }
        }
        time += kept_s;
    }
    return history;
}

void add_history(fleet::NodeReport& report, const ZoneMemory& requests)
{
    roll_history_each_second(requests);
    for (std::size_t kept = 0; kept < History::scales.size(); ++kept) {
        const std::int64_t kept_s = History::scales[kept].step_s;
        const History::Steps steps = requests.history().read(kept);
        for (std::size_t i = 0; i < fleet::history_scales.size(); ++i) {
            const fleet::HistoryScale& scale = fleet::history_scales[i];
            // Minutes are sums of the finer steps, which are kept for an hour.
            const bool is_finer = scale.step_s < History::scales[1].step_s;
            if (is_finer == (kept == 0)) {
                report.history[i] = history_of(steps, kept_s, scale);
            }
        }
    }
}

/// Adds the servers of a block, as all workers see them.
void add_servers(fleet::NodeReport& report, const RedisBlock& block)
{
    for (const auto& server : block.servers()) {
        report.servers.push_back({ block.name, server.name, std::string(server.state()),
                                   server.workers_up, worker_count() });
    }
}

/// Adds the keys of a zone that are refused most.
void add_busiest(fleet::NodeReport& report, const ZoneConf& zone)
{
    constexpr std::size_t of_a_zone = 10;
    std::array<TopRefused::Counter, of_a_zone> top;
    const std::size_t count = zone.zone.memory().top_refused().top(top, ngx_time());
    for (const TopRefused::Counter& counter : std::span(top).first(count)) {
        if (counter.refused > counter.key.tried) {
            report.busiest.push_back({ zone.zone.name, percent_encoded(counter.key.view()),
                                       counter.refused - counter.key.tried, counter.per_1000_s,
                                       counter.key.first_s });
        }
    }
}

}  // namespace

std::string settings_digest(const ZoneConf& zone)
{
    constexpr std::array names = { "burst ", "width ", "block ", "hash_key ", "clock ",
                                   "cache ", "lease ", "nodes ", "ahead " };
    constexpr std::size_t unnamed = 4;  // the first values
    static_assert(unnamed + names.size() == fleet::setting_names.size());
    const Rate& rate = zone.zone.policy.rate;
    const auto values = values_of(zone);
    std::string text = values[0] + '\n' + values[1] + '\n' + values[2] + '\n' + values[3]
        + "\nquota " + std::to_string(rate.quota) + "\nwindow "
        + std::to_string(rate.window.count());
    for (std::size_t i = 0; i < (zone.zone.ahead > 0 ? names.size() : names.size() - 1); ++i) {
        text += '\n' + std::string(names[i]) + values[unnamed + i];
    }
    std::array<char, 17> digits{};
    std::snprintf(
        digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(fnv1a(text)));
    return digits.data();
}

std::vector<FleetMember::ZoneSettings> each_zones_settings(const MainConf& conf)
{
    std::vector<FleetMember::ZoneSettings> all;
    for (const ZoneConf& zone : conf.zones) {
        all.emplace_back(zone.zone.name, each_setting(zone));
    }
    return all;
}

fleet::NodeReport node_figures(const MainConf& conf)
{
    fleet::NodeReport report;
    report.version = version;
    report.nginx = NGINX_VERSION;
    if (conf.requests != nullptr) {
        const ZoneMemory requests(*conf.requests);
        add_history(report, requests);
        const History::Values totals = history_totals(requests);
        report.passed = totals[History::passed];
        report.refused = totals[History::refused];
        report.undecided = totals[History::undecided];
    }
    for (const ZoneConf& zone : conf.zones) {
        if (report.zones.size() < fleet::most_zones) {
            report.zones.push_back(zone_figures(zone));
        }
        add_busiest(report, zone);
    }
    report.zones_omitted = conf.zones.size() - report.zones.size();
    std::stable_sort(
        report.busiest.begin(), report.busiest.end(),
        [](const auto& left, const auto& right) { return is_busier(left, right); });
    for (const RedisBlock& block : conf.redis) {
        add_servers(report, block);
    }
    return report;
}

}  // namespace ratelimit::http
