#include "fleet/node_report.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

namespace ratelimit::fleet {

namespace {

using namespace std::string_view_literals;
using Json = nlohmann::json;

// Sums of this many reports stay within 64 bits; and exact as a double.
constexpr std::uint64_t most_number = std::uint64_t{ 1 } << 53U;

// Of a member of an element of a list. Anything deeper is not kept.
constexpr int most_depth = 3;

// In the year 275760, the last that ECMAScript has.
constexpr std::uint64_t latest_second = 8'640'000'000'000;

// The names of the members in JSON.

template <class Object>
constexpr std::tuple<> members_of;

template <>
constexpr std::tuple members_of<NodeReport>{
    std::pair{ "name"sv, &NodeReport::name },
    std::pair{ "version"sv, &NodeReport::version },
    std::pair{ "nginx"sv, &NodeReport::nginx },
    std::pair{ "uptime_us"sv, &NodeReport::uptime_us },
    std::pair{ "configured_us"sv, &NodeReport::configured_us },
    std::pair{ "process"sv, &NodeReport::process },
    std::pair{ "replaces"sv, &NodeReport::replaces },
    std::pair{ "ended"sv, &NodeReport::ended },
    std::pair{ "passed"sv, &NodeReport::passed },
    std::pair{ "refused"sv, &NodeReport::refused },
    std::pair{ "undecided"sv, &NodeReport::undecided },
    std::pair{ "zones_omitted"sv, &NodeReport::zones_omitted },
};

template <>
constexpr std::tuple members_of<NodeReport::Zone>{
    std::pair{ "name"sv, &NodeReport::Zone::name },
    std::pair{ "settings"sv, &NodeReport::Zone::settings },
    std::pair{ "each_setting"sv, &NodeReport::Zone::each_setting },
    std::pair{ "limit"sv, &NodeReport::Zone::limit },
    std::pair{ "passed"sv, &NodeReport::Zone::passed },
    std::pair{ "refused"sv, &NodeReport::Zone::refused },
    std::pair{ "ahead"sv, &NodeReport::Zone::ahead },
    std::pair{ "highest_use"sv, &NodeReport::Zone::highest_use },
    std::pair{ "would_refuse"sv, &NodeReport::Zone::would_refuse },
};

template <>
constexpr std::tuple members_of<NodeReport::Server>{
    std::pair{ "redis"sv, &NodeReport::Server::redis },
    std::pair{ "server"sv, &NodeReport::Server::server },
    std::pair{ "state"sv, &NodeReport::Server::state },
    std::pair{ "workers_up"sv, &NodeReport::Server::workers_up },
    std::pair{ "workers"sv, &NodeReport::Server::workers },
};

template <>
constexpr std::tuple members_of<NodeReport::RefusedKey>{
    std::pair{ "zone"sv, &NodeReport::RefusedKey::zone },
    std::pair{ "id"sv, &NodeReport::RefusedKey::id },
    std::pair{ "refused"sv, &NodeReport::RefusedKey::refused },
    std::pair{ "per_1000_s"sv, &NodeReport::RefusedKey::per_1000_s },
    std::pair{ "since"sv, &NodeReport::RefusedKey::since },
};

template <>
constexpr std::tuple members_of<NodeReport::Outage>{
    std::pair{ "from_ms"sv, &NodeReport::Outage::from_ms },
    std::pair{ "to_ms"sv, &NodeReport::Outage::to_ms },
    std::pair{ "times"sv, &NodeReport::Outage::times },
};

template <>
constexpr std::tuple members_of<NodeReport::Load>{
    std::pair{ "at_ms"sv, &NodeReport::Load::at_ms },
    std::pair{ "text"sv, &NodeReport::Load::text },
};

/// Calls `visit` with the name and the value of each text and number.
template <class Object, class Visit>
void each_member(Object& object, Visit&& visit)
{
    std::apply(
        [&](const auto&... member) { (visit(member.first, object.*member.second), ...); },
        members_of<std::remove_const_t<Object>>);
}

/// Calls `visit` with the name, the elements and their greatest number of each list.
template <class Report, class Visit>
void each_list(Report& report, Visit&& visit)
{
    visit("zones"sv, report.zones, most_zones);
    visit("redis"sv, report.servers, most_servers);
    visit("busiest"sv, report.busiest, most_busiest);
    visit("outages"sv, report.outages, most_past);
    visit("loads"sv, report.loads, most_past);
}

/// Calls `visit` with the name, the values and their greatest number of each list of numbers.
template <class Report, class Visit>
void each_series(Report& report, Visit&& visit)
{
    for (std::size_t i = 0; i < history_scales.size(); ++i) {
        const HistoryScale& scale = history_scales[i];
        visit(scale.passed, report.history[i].passed, scale.steps);
        visit(scale.refused, report.history[i].refused, scale.steps);
        visit(scale.undecided, report.history[i].undecided, scale.steps);
    }
}

// These set a member, or an element of a list, if the value has its type. False: it has another.

bool read(const Json& json, std::string& text)
{
    if (json.is_string()) {
        text.assign(json.get_ref<const std::string&>(), 0, most_text);
    }
    return json.is_string();
}

bool read(const Json& json, std::uint64_t& number)
{
    if (json.is_number_unsigned()) {
        number = std::min(json.get<std::uint64_t>(), most_number);
    }
    return json.is_number_unsigned();
}

template <class Object>
bool read(const Json& json, Object& object)
{
    each_member(object, [&json](std::string_view name, auto& value) {
        if (json.contains(name)) {
            read(json[name], value);
        }
    });
    return json.is_object();
}

/// Elements of other types are left out, and count against the bound.
template <class Element>
void read_list(const Json& json, std::vector<Element>& list, std::size_t most)
{
    for (std::size_t i = 0; json.is_array() && i < std::min(most, json.size()); ++i) {
        if (Element element{}; read(json[i], element)) {
            list.push_back(std::move(element));
        }
    }
}

template <class Object>
Json written(const Object& object)
{
    Json json = Json::object();
    each_member(object, [&json](std::string_view name, const auto& value) {
        if constexpr (std::is_same_v<decltype(value), const std::string&>) {
            json[std::string(name)] = value.substr(0, most_text);
        } else {
            json[std::string(name)] = value;
        }
    });
    return json;
}

/// Leaves out members that are seldom there.
void erase_zeros(Json& json, std::initializer_list<const char*> members)
{
    for (const char* member : members) {
        if (json.contains(member) && json[member] == 0) {
            json.erase(member);
        }
    }
}

}  // namespace

std::string write_report(const NodeReport& report)
{
    Json json = written(report);
    const std::size_t omitted =
        report.zones.size() > most_zones ? report.zones.size() - most_zones : 0;
    json["zones_omitted"] = omitted + report.zones_omitted;
    erase_zeros(json, { "zones_omitted", "ended" });
    each_list(report, [&json](std::string_view name, const auto& list, std::size_t most) {
        if (list.empty() && (name == "outages" || name == "loads")) {
            return;
        }
        Json array = Json::array();
        for (const auto& element : std::span(list).first(std::min(most, list.size()))) {
            array.push_back(written(element));
            erase_zeros(array.back(), { "would_refuse" });
        }
        json[std::string(name)] = std::move(array);
    });
    for (std::size_t i = 0; i < history_scales.size(); ++i) {
        if (!report.history[i].passed.empty()) {
            json[std::string(history_scales[i].start)] = report.history[i].start;
        }
    }
    each_series(report, [&json](std::string_view name, const auto& series, std::size_t most) {
        if (!series.empty()) {
            json[std::string(name)] = std::vector(
                series.end() - static_cast<std::ptrdiff_t>(std::min(most, series.size())),
                series.end());
        }
    });
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<NodeReport> parse_report(std::string_view text)
{
    if (text.size() > most_report) {
        return std::nullopt;
    }
    const auto is_read = [](int depth, Json::parse_event_t, const Json&) {
        return depth <= most_depth;
    };
    const Json json = Json::parse(text.begin(), text.end(), is_read, false);
    NodeReport report;
    if (!read(json, report)) {
        return std::nullopt;
    }
    const auto read_named = [&json](std::string_view name, auto& list, std::size_t most) {
        if (json.contains(name)) {
            read_list(json[name], list, most);
        }
    };
    each_list(report, read_named);
    each_series(report, read_named);
    for (std::size_t i = 0; i < history_scales.size(); ++i) {
        if (json.contains(history_scales[i].start)) {
            read(json[history_scales[i].start], report.history[i].start);
        }
    }
    report.name.resize(std::min(report.name.size(), most_name));
    for (NodeReport::RefusedKey& key : report.busiest) {
        key.since = key.since <= latest_second ? key.since : 0;
    }
    constexpr std::uint64_t latest_ms = latest_second * 1000;
    std::erase_if(report.outages, [](const NodeReport::Outage& outage) {
        return outage.from_ms > latest_ms || outage.to_ms > latest_ms;
    });
    std::erase_if(
        report.loads, [](const NodeReport::Load& load) { return load.at_ms > latest_ms; });
    return report;
}

}  // namespace ratelimit::fleet
