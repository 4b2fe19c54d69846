#include "rehearse/discover.h"

#include "limit/grammar.h"
#include "limit/rate_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <set>

namespace ratelimit::rehearse {

namespace {

constexpr std::size_t most_paths = 10;
constexpr std::array<std::int64_t, 3> windows = { 1, 60, 3600 };  // seconds

/// Counts requests by the first part of their paths: "/api/", or a whole path such as "/login".
constexpr std::string_view paths_conf = R"conf(
    map $uri $first_part { ~^(?<part>/[^/]+/) $part; default $uri; }
    ratelimit_zone $first_part zone=paths rate=1000000000r/s;
    ratelimit zone=paths shadow;
)conf";

std::string quoted(const std::string& text)
{
    if (text.find_first_of(" \t\"'\\;{}#") == std::string::npos) {
        return text;
    }
    std::string out = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            out += '\\';
        }
        out += letter;
    }
    return out + '"';
}

/// A name for a path's zone that no other one has: "/api/v1" is "api_v1".
std::string zone_name(const std::string& path, std::set<std::string>& used)
{
    std::string name;
    for (const char letter : path) {
        const std::string one(1, letter);
        const bool fits = good_name(one) && letter != '.';
        if (fits) {
            name += letter;
        } else if (!name.empty() && name.back() != '_') {
            name += '_';
        }
    }
    while (name.ends_with('_')) {
        name.pop_back();
    }
    name = name.empty() ? "root" : name.substr(0, 40);
    const std::string base = name;
    for (int number = 2; !used.insert(name).second; ++number) {
        name = base + "_" + std::to_string(number);
    }
    return name;
}

std::string zone_line(const std::string& zone, const std::string& rate)
{
    return "ratelimit_zone $ratelimit_client zone=" + zone + " rate=" + rate + ";\n";
}

std::string location_line(const Discovery::Path& path)
{
    return "location " + path.location + " { ratelimit zone=" + path.zone + "; }\n";
}

/// Quotas of 1, 2, 5, 10, ... in each window, until none refuses a client.
void fill_table(ZoneReplay replay, Discovery::Path& path)
{
    constexpr std::int64_t largest = 1'000'000;
    constexpr std::array<std::int64_t, 3> steps = { 1, 2, 5 };
    for (std::int64_t unit = 1; unit < largest; unit *= 10) {
        for (const std::int64_t step : steps) {
            auto& row = path.table.emplace_back();
            bool refuses = false;
            for (const std::int64_t window : windows) {
                const Rate rate{ unit * step, std::chrono::seconds{ window } };
                const std::uint64_t keys = replay.with(rate)->front().keys;
                row.push_back({ rate_text(rate), keys });
                refuses = refuses || keys > 0;
            }
            if (!refuses) {
                return;
            }
        }
    }
}

/// The busiest paths, as a configuration.
std::string conf_of_paths(const LimitReport& paths, Discovery& out)
{
    std::set<std::string> used;
    std::string conf;
    for (const BusyKey& busy : paths.busiest) {
        if (busy.key.find('\\') != std::string::npos) {
            continue;  // bytes that no person types
        }
        Discovery::Path path;
        const bool prefix = busy.key.size() > 1 && busy.key.ends_with('/');
        path.location = (prefix ? "" : "= ") + quoted(busy.key);
        path.zone = zone_name(busy.key, used);
        conf += zone_line(path.zone, "60r/m") + location_line(path);
        out.paths.push_back(std::move(path));
    }
    return conf;
}

}  // namespace

Discovery discover(Settings settings, const Watch& watch)
{
    if (const auto name = read_once(settings); !name.empty()) {
        throw InputError("--discover reads the logs twice, which " + name + " cannot be");
    }
    Discovery out;
    constexpr double usual_share = 0.001;
    out.share = settings.share.value_or(usual_share);
    settings.share.reset();
    settings.tolerance.unreached = true;
    settings.busiest = most_paths;
    settings.conf_text = paths_conf;
    out.run = rehearse(settings, watch);
    settings.conf_text = conf_of_paths(out.run->report.limits.front(), out);
    if (settings.conf_text.empty() || out.run->interrupted) {
        return out;
    }
    settings.share = out.share;
    out.run = rehearse(settings, watch);
    const HttpConf& conf = out.run->subject().conf();
    for (std::size_t i = 0; i < out.paths.size(); ++i) {
        Discovery::Path& path = out.paths[i];
        const LimitReport& limit = out.run->report.limits[i];
        path.requests = limit.result->requests;
        path.clients = limit.keys.keys;
        if (limit.suggested) {
            path.rate = limit.suggested->rate;
            path.clients_refused = limit.suggested->keys_refused;
        }
        fill_table({ *out.run->subject().rehearsal().trace(), conf.zones, conf.limits, i }, path);
    }
    return out;
}

std::string text_report(const Discovery& discovery)
{
    std::string out;
    for (const std::string& problem : discovery.run->report.problems) {
        out += "NOT USABLE: " + problem + "\n";
    }
    for (const Discovery::Path& path : discovery.paths) {
        add(out, "%s: %" PRIu64 " requests of %" PRIu64 " clients\n", path.location.c_str(),
            path.requests, path.clients);
        add(out, "  clients that a quota would refuse, in\n  %8s  %10s  %10s  %10s\n", "quota",
            "1s", "1m", "1h");
        for (const auto& row : path.table) {
            const std::string quota = row.front().rate.substr(0, row.front().rate.find('r'));
            add(out, "  %8s", quota.c_str());
            for (const Discovery::Cell& cell : row) {
                add(out, "  %8.3g %%", percent(cell.clients_refused, path.clients));
            }
            out += '\n';
        }
        out += '\n';
    }
    add(out, "# Each rate is the smallest that refuses at most %.4g %% of the clients.\n",
        100 * discovery.share);
    for (const Discovery::Path& path : discovery.paths) {
        out += path.rate.empty() ? "" : zone_line(path.zone, path.rate);
    }
    for (const Discovery::Path& path : discovery.paths) {
        out += path.rate.empty() ? "" : location_line(path);
    }
    return out;
}

std::string json_report(const Discovery& discovery)
{
    using Json = nlohmann::ordered_json;
    Json paths = Json::array();
    for (const Discovery::Path& path : discovery.paths) {
        Json table = Json::array();
        for (const auto& row : path.table) {
            for (const Discovery::Cell& cell : row) {
                table.push_back(
                    { { "rate", cell.rate }, { "clients_refused", cell.clients_refused } });
            }
        }
        paths.push_back({ { "location", path.location },
                          { "requests", path.requests },
                          { "clients", path.clients },
                          { "rate", path.rate.empty() ? Json() : Json(path.rate) },
                          { "clients_refused", path.clients_refused },
                          { "table", table } });
    }
    const Report& report = discovery.run->report;
    const Json all = { { "lines", report.counts.lines },
                       { "skipped", report.counts.skipped() },
                       { "usable", report.problems.empty() },
                       { "problems", report.problems },
                       { "paths", paths } };
    return all.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ratelimit::rehearse
