#include "http/api/fleet_json.h"

#include "http/api/happened_json.h"
#include "http/api/override_json.h"
#include "http/shown_key.h"
#include "limit/percent_text.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::http {

namespace {

// The work of one turn: some 0.2 ms each.
constexpr std::size_t bytes_a_turn = std::size_t{ 32 } * 1024;  // of reports, and of the text
constexpr std::size_t zones_a_turn = 500;                       // of nodes
constexpr std::size_t items_a_turn = 500;                       // of what happened to one node
constexpr std::size_t happenings_a_turn = 40;                   // their text

void write_summary(
    JsonText& json, const MainConf& conf, const std::vector<fleet::FleetNode>& nodes,
    const fleet::NodesReader& reader, bool connected)
{
    const FleetMember& fleet = *conf.fleet;
    const fleet::NodeList& list = reader.list();
    const std::uint64_t listed = list.nodes - std::min(list.nodes, reader.gone());
    const auto live = std::count_if(
        nodes.begin(), nodes.end(), [](const fleet::FleetNode& node) { return node.live; });
    std::uint64_t overrides = 0;
    for (const Zone* zone : fleet.zones) {
        overrides += override_count(*zone);
    }
    json.begin_object("fleet")
        .number("nodes", static_cast<std::int64_t>(live))
        .number("known", std::max<std::uint64_t>(listed, nodes.size()))
        .text("redis", fleet.redis().name)
        .flag("connected", connected)
        .seconds("as_of", or_null(Microseconds(list.now_us)))
        .number("overrides", overrides)
        .number("overrides_left_out", std::uint64_t{ fleet.shared().shared().left_out.load() })
        .number("overrides_lost", std::uint64_t{ fleet.shared().shared().lost.load() })
        .seconds("lost_at", or_null(milliseconds{ fleet.shared().shared().lost_ms.load() }))
        .number("unreadable", reader.unreadable())
        .number("left_out", reader.left_out())
        .seconds("changes_since", or_null(Microseconds(changes_since(list))))
        .end_object();
}

constexpr std::uint64_t us_in_s = 1'000'000;

void write_node(JsonText& json, const fleet::FleetNode& node, std::string_view self)
{
    const std::uint64_t configured = node.report.configured_us;
    json.begin_object()
        .text("name", node.report.name)
        .text("id", node.id)
        .flag("self", node.id == self)
        .flag("live", node.live)
        .text("version", node.report.version)
        .text("nginx", node.report.nginx)
        .number("uptime", node.report.uptime_us / us_in_s)
        .number("configured", configured == 0 ? std::nullopt : std::optional(configured / us_in_s))
        .number("passed", node.report.passed)
        .number("refused", node.report.refused)
        .number("undecided", node.report.undecided)
        .seconds("heard", Microseconds(node.heard_us))
        .number("zones_omitted", node.report.zones_omitted)
        .begin_array("zones");
    for (const auto& zone : node.report.zones) {
        json.begin_object()
            .text("name", zone.name)
            .text("limit", zone.limit)
            .text("settings", zone.settings)
            .number("passed", zone.passed)
            .number("refused", zone.refused)
            .number("would_refuse", zone.would_refuse)
            .end_object();
    }
    json.end_array().begin_array("redis");
    for (const auto& server : node.report.servers) {
        json.begin_object()
            .text("redis", server.redis)
            .text("server", server.server)
            .text("state", server.state)
            .number("workers_up", server.workers_up)
            .number("workers", server.workers)
            .end_object();
    }
    json.end_array().end_object();
}

void write_texts(JsonText& json, std::string_view name, const std::vector<std::string>& texts)
{
    json.begin_array(name);
    for (const std::string& text : texts) {
        json.text({}, text);
    }
    json.end_array();
}

/// The members of one scale.
void write_steps(JsonText& json, const fleet::NodeHistory& history, std::uint64_t step_s)
{
    const auto write = [&json](std::string_view name, const std::vector<std::uint64_t>& values) {
        json.begin_array(name);
        for (const std::uint64_t value : values) {
            json.number({}, value);
        }
        json.end_array();
    };
    json.number("step", step_s).number("start", history.start);
    write("passed", history.passed);
    write("refused", history.refused);
    write("undecided", history.undecided);
}

/// The hour, then the longer scales.
void write_history(JsonText& json, const fleet::FleetHistories& histories)
{
    json.begin_object("history");
    write_steps(json, histories[0], fleet::history_scales[0].step_s);
    json.end_object().begin_array("longer_history");
    for (std::size_t i = 1; i < histories.size(); ++i) {
        json.begin_object();
        write_steps(json, histories[i], fleet::history_scales[i].step_s);
        json.end_object();
    }
    json.end_array();
}

void write_zone(JsonText& json, MainConf& conf, const fleet::FleetZone& zone)
{
    json.begin_object()
        .text("name", zone.name)
        .number("nodes", zone.nodes)
        .number("passed", zone.passed)
        .number("refused", zone.refused)
        .number("would_refuse", zone.would_refuse)
        .number("ahead", zone.ahead)
        .number("highest_use", zone.highest_use);
    write_texts(json, "limits", zone.limits);
    json.text("settings", or_null(std::string_view(zone.settings)))
        .number("differ", zone.differ.count);
    write_texts(json, "settings_differ", zone.differ.names);
    json.begin_array("differences");
    for (const auto& [setting, nodes] : zone.differences) {
        json.begin_object().text("setting", setting).number("differ", nodes.count);
        write_texts(json, "nodes", nodes.names);
        json.end_object();
    }
    json.end_array();
    if (const ZoneConf* own = conf.zone_named(zone.name)) {
        write_own_override(json, own->zone, {});
    } else {
        json.null("override");
    }
    json.end_object();
}

void write_busiest(JsonText& json, MainConf& conf, const std::vector<fleet::FleetNode>& nodes)
{
    json.begin_array("busiest");
    for (const auto& key : fleet::sum_busiest(nodes)) {
        const std::string bytes = percent_decoded(key.id).value_or(key.id);
        const ZoneConf* zone = conf.zone_named(key.zone);
        json.begin_object()
            .text("zone", key.zone)
            .text("key", shown_key(zone == nullptr ? nullptr : &zone->zone, bytes))
            .text("id", percent_encoded(bytes))
            .number("refused", key.refused)
            .number("per_second", static_cast<double>(key.per_1000_s) / 1000)
            .number("since", key.since);
        if (zone == nullptr) {
            json.null("override");
        } else {
            write_own_override(json, zone->zone, bytes);
        }
        json.end_object();
    }
    json.end_array();
}

}  // namespace

FleetJson::FleetJson(MainConf& conf, fleet::NodeList list, bool connected)
    : conf_(conf), connected_(connected), reader_(std::move(list)), sums_({})
{
}

bool FleetJson::step()
{
    switch (part_) {
    case Part::reports:
        if (!reader_.read(bytes_a_turn)) {
            begin();
            part_ = Part::nodes;
        }
        return true;
    case Part::nodes:
        part_ = write_nodes() ? Part::nodes : Part::sums;
        return true;
    case Part::sums:
        if (!sums_.read(zones_a_turn)) {
            json_.begin_array("zones");
            part_ = Part::zones;
        }
        return true;
    case Part::zones:
        part_ = write_zones() ? Part::zones : Part::past;
        return true;
    case Part::past:
        part_ = merge_past() ? Part::past : Part::happened;
        return true;
    default:
        return write_happened();
    }
}

/// Writes all that stands before the nodes.
void FleetJson::begin()
{
    auto& nodes = reader_.nodes();
    if (nodes.empty()) {
        nodes.push_back(
            { std::string(conf_.fleet->shared().id()), 0, true, conf_.fleet->report() });
        history_ = fleet::sum_history(nodes, static_cast<std::uint64_t>(ngx_time()));
    } else {
        history_ = reader_.history();
    }
    sums_ = fleet::ZoneSums(nodes);
    json_.begin_object();
    write_summary(json_, conf_, nodes, reader_, connected_);
    json_.begin_array("nodes");
}

/// Writes some of the nodes. True: there are more.
bool FleetJson::write_nodes()
{
    const std::string_view self = conf_.fleet->shared().id();
    const auto& nodes = reader_.nodes();
    for (const std::size_t begun = json_.size(); node_ < nodes.size(); ++node_) {
        if (json_.size() - begun > bytes_a_turn) {
            return true;
        }
        write_node(json_, nodes[node_], self);
    }
    json_.end_array();
    write_history(json_, history_);
    return false;
}

/// Writes some of the zones and, after the last one, the busiest keys. True: there are more.
bool FleetJson::write_zones()
{
    const std::size_t begun = json_.size();
    for (std::size_t done = 0; done < zones_a_turn && json_.size() - begun < bytes_a_turn;) {
        const auto zone = sums_.next();
        if (!zone) {
            json_.end_array();
            write_busiest(json_, conf_, reader_.nodes());
            collect_past();
            return false;
        }
        write_zone(json_, conf_, *zone);
        done += zone->nodes + 1;
    }
    return true;
}

/// Adds events that are in no report in Redis.
void FleetJson::collect_past()
{
    past_ = reader_.take_happenings();
    const fleet::NodeList& list = reader_.list();
    if (list.now_us == 0) {
        past_.add(reader_.nodes().front());
    }
    for (const auto& [member, version] : list.changes) {
        past_.add_change(member, version);
    }
    for (const auto& [member, heard] : list.forgotten) {
        past_.add_gone(member, heard);
    }
}

/// Merges some of the events and, after the last one, begins their list. True: there is more.
bool FleetJson::merge_past()
{
    const std::uint64_t now = reader_.list().now_us == 0
        ? static_cast<std::uint64_t>(ngx_time()) * us_in_s
        : reader_.list().now_us;
    if (past_.merge(items_a_turn, now)) {
        return true;
    }
    happened_ = std::move(past_).latest();
    json_.begin_array("happened");
    return false;
}

/// Writes some of the events. True: there are more.
bool FleetJson::write_happened()
{
    for (std::size_t done = 0; happening_ < happened_.size(); ++happening_) {
        if (++done > happenings_a_turn) {
            return true;
        }
        write_happening(json_, conf_, happened_[happening_]);
    }
    json_.end_array();
    return false;
}

}  // namespace ratelimit::http
