#include "fleet/node_report.h"

#include <algorithm>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

namespace ratelimit::fleet {

namespace {

using Json = nlohmann::json;

// Sums of this many reports stay within 64 bits; and exact as a double.
constexpr std::uint64_t most_number = std::uint64_t{ 1 } << 53U;

/// Null: `json` has no such member.
const Json* member(const Json& json, const char* name)
{
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found == json.end() ? nullptr : &*found;
}

std::string text_of(const Json& json, const char* name)
{
    const Json* value = member(json, name);
    return value != nullptr && value->is_string()
        ? value->get_ref<const std::string&>().substr(0, most_text)
        : std::string{};
}

/// 0 if it is no number, or a negative one.
std::uint64_t number_of(const Json& json, const char* name)
{
    const Json* value = member(json, name);
    return value != nullptr && value->is_number_unsigned()
        ? std::min(value->get<std::uint64_t>(), most_number)
        : 0;
}

/// Calls `read` with each element of an array that is an object, `most` at most.
template <class Read>
void each_of(const Json& json, const char* name, std::size_t most, Read&& read)
{
    const Json* array = member(json, name);
    if (array == nullptr || !array->is_array()) {
        return;
    }
    for (const Json& element : *array) {
        if (most-- == 0) {
            return;
        }
        if (element.is_object()) {
            read(element);
        }
    }
}

template <class Element, class Write>
Json array_of(const std::vector<Element>& elements, std::size_t most, Write&& write)
{
    Json array = Json::array();
    for (const Element& element : std::span(elements).first(std::min(most, elements.size()))) {
        array.push_back(write(element));
    }
    return array;
}

}  // namespace

std::string write_report(const NodeReport& report)
{
    Json json = {
        { "name", report.name.substr(0, most_text) },
        { "version", report.version },
        { "nginx", report.nginx },
        { "uptime", report.uptime },
    };
    const std::size_t omitted =
        report.zones.size() > most_zones ? report.zones.size() - most_zones : 0;
    if (omitted + report.zones_omitted > 0) {
        json["zones_omitted"] = omitted + report.zones_omitted;
    }
    json["zones"] = array_of(report.zones, most_zones, [](const NodeReport::Zone& zone) {
        return Json{ { "name", zone.name.substr(0, most_text) },
                     { "settings", zone.settings },
                     { "limit", zone.limit.substr(0, most_text) },
                     { "passed", zone.passed },
                     { "refused", zone.refused } };
    });
    json["redis"] = array_of(report.servers, most_servers, [](const NodeReport::Server& server) {
        return Json{ { "redis", server.redis.substr(0, most_text) },
                     { "server", server.server.substr(0, most_text) },
                     { "state", server.state },
                     { "workers_up", server.workers_up },
                     { "workers", server.workers } };
    });
    json["busiest"] = array_of(report.busiest, most_busiest, [](const NodeReport::RefusedKey& key) {
        return Json{ { "zone", key.zone.substr(0, most_text) },
                     { "id", key.id.substr(0, most_text) },
                     { "refused", key.refused } };
    });
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<NodeReport> parse_report(std::string_view text)
{
    if (text.size() > most_report) {
        return std::nullopt;
    }
    // Without exceptions: what is no JSON gives a discarded value.
    const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
    if (!json.is_object()) {
        return std::nullopt;
    }
    NodeReport report;
    report.name = text_of(json, "name");
    report.version = text_of(json, "version");
    report.nginx = text_of(json, "nginx");
    report.uptime = number_of(json, "uptime");
    report.zones_omitted = number_of(json, "zones_omitted");
    each_of(json, "zones", most_zones, [&report](const Json& zone) {
        report.zones.push_back({ text_of(zone, "name"), text_of(zone, "settings"),
                                 text_of(zone, "limit"), number_of(zone, "passed"),
                                 number_of(zone, "refused") });
    });
    each_of(json, "redis", most_servers, [&report](const Json& server) {
        report.servers.push_back({ text_of(server, "redis"), text_of(server, "server"),
                                   text_of(server, "state"), number_of(server, "workers_up"),
                                   number_of(server, "workers") });
    });
    each_of(json, "busiest", most_busiest, [&report](const Json& key) {
        report.busiest.push_back(
            { text_of(key, "zone"), text_of(key, "id"), number_of(key, "refused") });
    });
    return report;
}

std::vector<FleetZone> sum_zones(std::span<const FleetNode> nodes)
{
    struct Sum {
        FleetZone zone;
        std::map<std::string_view, std::vector<std::string_view>> by_settings;  // names of nodes
    };
    std::map<std::string_view, Sum> sums;
    for (const FleetNode& node : nodes) {
        if (!node.live) {
            continue;
        }
        for (const NodeReport::Zone& zone : node.report.zones) {
            Sum& sum = sums[zone.name];
            ++sum.zone.nodes;
            sum.zone.passed += zone.passed;
            sum.zone.refused += zone.refused;
            sum.by_settings[zone.settings].push_back(node.report.name);
            auto& limits = sum.zone.limits;
            constexpr std::size_t most_limits = 8;
            if (limits.size() < most_limits
                && std::find(limits.begin(), limits.end(), zone.limit) == limits.end()) {
                limits.push_back(zone.limit);
            }
        }
    }
    std::vector<FleetZone> zones;
    for (auto& [name, sum] : sums) {
        std::size_t most = 0;
        std::size_t with_most = 0;
        for (const auto& [settings, names] : sum.by_settings) {
            with_most = names.size() > most ? 1 : with_most + (names.size() == most ? 1 : 0);
            most = std::max(most, names.size());
        }
        for (const auto& [settings, names] : sum.by_settings) {
            if (names.size() < most || with_most > 1) {
                sum.zone.settings_differ.insert(
                    sum.zone.settings_differ.end(), names.begin(), names.end());
            }
        }
        std::sort(sum.zone.settings_differ.begin(), sum.zone.settings_differ.end());
        sum.zone.name = name;
        zones.push_back(std::move(sum.zone));
    }
    return zones;
}

std::vector<NodeReport::RefusedKey> sum_busiest(std::span<const FleetNode> nodes)
{
    std::map<std::pair<std::string_view, std::string_view>, std::uint64_t> sums;
    for (const FleetNode& node : nodes) {
        if (node.live) {
            for (const NodeReport::RefusedKey& key : node.report.busiest) {
                sums[{ key.zone, key.id }] += key.refused;
            }
        }
    }
    std::vector<NodeReport::RefusedKey> keys;
    keys.reserve(sums.size());
    for (const auto& [key, refused] : sums) {
        keys.push_back({ std::string(key.first), std::string(key.second), refused });
    }
    std::stable_sort(keys.begin(), keys.end(), [](const auto& left, const auto& right) {
        return left.refused > right.refused;
    });
    keys.resize(std::min(keys.size(), most_busiest));
    return keys;
}

}  // namespace ratelimit::fleet
