#include "fleet/node_report.h"

#include "fleet/json_tree.h"
#include "limit/json_text.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ratelimit::fleet {

namespace {

using namespace std::string_view_literals;

// Sums of this many reports stay within 64 bits; and exact as a double.
constexpr std::uint64_t most_number = std::uint64_t{ 1 } << 53U;

// The report, a list and its element. Anything deeper is not kept.
constexpr std::size_t most_depth = 3;

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

bool read(const JsonTree& json, std::string& text)
{
    if (json.single.is_string()) {
        text.assign(json.single.get_ref<const std::string&>(), 0, most_text);
    }
    return json.single.is_string();
}

bool read(const JsonTree& json, std::uint64_t& number)
{
    if (json.single.is_number_unsigned()) {
        number = std::min(json.single.get<std::uint64_t>(), most_number);
    }
    return json.single.is_number_unsigned();
}

template <class Object>
bool read(const JsonTree& json, Object& object)
{
    each_member(object, [&json](std::string_view name, auto& value) {
        if (const JsonTree* member = json.find(name)) {
            read(*member, value);
        }
    });
    return json.kind == JsonTree::Kind::object;
}

/// Elements of other types are left out, and count against the bound.
template <class Element>
void read_list(const JsonTree& json, std::vector<Element>& list, std::size_t most)
{
    if (json.kind != JsonTree::Kind::array) {
        return;
    }
    for (const JsonTree& part : std::span(json.parts).first(std::min(most, json.parts.size()))) {
        if (Element element{}; read(part, element)) {
            list.push_back(std::move(element));
        }
    }
}

void write(JsonText& json, std::string_view name, const std::string& text)
{
    json.text(name, std::string_view(text).substr(0, most_text));
}

/// Members that are seldom there are left out.
void write(JsonText& json, std::string_view name, std::uint64_t number)
{
    if (number != 0 || (name != "zones_omitted" && name != "ended" && name != "would_refuse")) {
        json.number(name, number);
    }
}

template <class Object>
void write_members(JsonText& json, const Object& object)
{
    each_member(
        object, [&json](std::string_view name, const auto& value) { write(json, name, value); });
}

}  // namespace

std::string write_report(const NodeReport& report)
{
    JsonText json;
    json.begin_object();
    write_members(json, report);
    each_list(report, [&json](std::string_view name, const auto& list, std::size_t most) {
        if (list.empty() && (name == "outages" || name == "loads")) {
            return;
        }
        json.begin_array(name);
        for (const auto& element : std::span(list).first(std::min(most, list.size()))) {
            json.begin_object();
            write_members(json, element);
            json.end_object();
        }
        json.end_array();
    });
    for (std::size_t i = 0; i < history_scales.size(); ++i) {
        if (!report.history[i].passed.empty()) {
            json.number(history_scales[i].start, report.history[i].start);
        }
    }
    each_series(report, [&json](std::string_view name, const auto& series, std::size_t most) {
        if (!series.empty()) {
            json.begin_array(name);
            for (const std::uint64_t each : std::span(series).last(std::min(most, series.size()))) {
                json.number({}, each);
            }
            json.end_array();
        }
    });
    std::string text = json.finish();
    text.pop_back();  // the end of the line: lua/fleet_leave.lua adds a member
    return text;
}

std::optional<NodeReport> parse_report(std::string_view text)
{
    if (text.size() > most_report) {
        return std::nullopt;
    }
    const auto json = parse_json(text, most_depth);
    NodeReport report;
    if (!json || !read(*json, report)) {
        return std::nullopt;
    }
    const auto read_named = [&json](std::string_view name, auto& list, std::size_t most) {
        if (const JsonTree* member = json->find(name)) {
            read_list(*member, list, most);
        }
    };
    each_list(report, read_named);
    each_series(report, read_named);
    for (std::size_t i = 0; i < history_scales.size(); ++i) {
        if (const JsonTree* member = json->find(history_scales[i].start)) {
            read(*member, report.history[i].start);
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
