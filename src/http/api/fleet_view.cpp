#include "http/api/fleet_view.h"

#include "fleet/nodes_call.h"
#include "http/api/json_text.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "http/conf.h"
#include "nginx/pool.h"
#include "nginx/text.h"
#include "store/known_nodes.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit::http {

namespace {

constexpr double us_a_second = 1e6;
constexpr std::size_t bytes_a_turn = std::size_t{ 32 } * 1024;  // of reports: some 0.2 ms

void write_summary(
    JsonText& json, const MainConf& conf, const std::vector<fleet::FleetNode>& nodes,
    const fleet::NodesReader& reader, bool connected)
{
    const FleetNode& fleet = *conf.fleet;
    const fleet::NodeList& list = reader.list();
    const std::uint64_t listed = list.nodes - std::min(list.nodes, reader.replaced());
    const auto live = std::count_if(
        nodes.begin(), nodes.end(), [](const fleet::FleetNode& node) { return node.live; });
    std::uint64_t overrides = 0;
    for (const Zone* zone : fleet.zones) {
        overrides += zone->override_slot == nullptr ? 0 : zone->override_slot->count();
    }
    json.begin_object("fleet")
        .number("nodes", static_cast<std::int64_t>(live))
        .number("known", std::max<std::uint64_t>(listed, nodes.size()))
        .text("redis", fleet.redis().name)
        .flag("connected", connected);
    if (list.now_us == 0) {
        json.null("as_of");
    } else {
        json.seconds("as_of", static_cast<double>(list.now_us) / us_a_second);
    }
    json.number("overrides", overrides)
        .number("overrides_left_out", std::uint64_t{ fleet.shared().shared().left_out.load() })
        .number("unreadable", reader.unreadable())
        .end_object();
}

void write_node(JsonText& json, const fleet::FleetNode& node, std::string_view self)
{
    json.begin_object()
        .text("name", node.report.name)
        .text("id", node.id)
        .flag("self", node.id == self)
        .flag("live", node.live)
        .text("version", node.report.version)
        .text("nginx", node.report.nginx)
        .number("uptime", node.report.uptime)
        .seconds("heard", static_cast<double>(node.heard_us) / us_a_second)
        .number("zones_omitted", node.report.zones_omitted)
        .begin_array("zones");
    for (const auto& zone : node.report.zones) {
        json.begin_object()
            .text("name", zone.name)
            .text("limit", zone.limit)
            .text("settings", zone.settings)
            .number("passed", zone.passed)
            .number("refused", zone.refused)
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

void write_zones(JsonText& json, const std::vector<fleet::FleetNode>& nodes)
{
    json.begin_array("zones");
    for (const fleet::FleetZone& zone : fleet::sum_zones(nodes)) {
        json.begin_object()
            .text("name", zone.name)
            .number("nodes", zone.nodes)
            .number("passed", zone.passed)
            .number("refused", zone.refused);
        write_texts(json, "limits", zone.limits);
        write_texts(json, "settings_differ", zone.settings_differ);
        json.end_object();
    }
    json.end_array();
}

void write_busiest(JsonText& json, const std::vector<fleet::FleetNode>& nodes)
{
    json.begin_array("busiest");
    for (const auto& key : fleet::sum_busiest(nodes)) {
        const std::string bytes = percent_decoded(key.id).value_or(key.id);
        std::string shown(4 * bytes.size(), '\0');
        json.begin_object()
            .text("zone", key.zone)
            .text("key", nginx::escaped_for_log(bytes, shown.data(), shown.size()))
            .text("id", percent_encoded(bytes))
            .number("refused", key.refused)
            .end_object();
    }
    json.end_array();
}

/// Begins the page, with all but what is summed over the nodes.
JsonText nodes_json(const MainConf& conf, fleet::NodesReader& reader, bool connected)
{
    const std::string_view self = conf.fleet->shared().id();
    std::vector<fleet::FleetNode>& nodes = reader.nodes();
    if (nodes.empty()) {
        nodes.push_back({ std::string(self), 0, true, conf.fleet->report() });
    }
    JsonText json;
    json.begin_object();
    write_summary(json, conf, nodes, reader, connected);
    json.begin_array("nodes");
    for (const fleet::FleetNode& node : nodes) {
        write_node(json, node, self);
    }
    json.end_array();
    return json;
}

class FleetQuery final : public RedisQuery, private fleet::NodesCall {
public:
    explicit FleetQuery(ngx_http_request_t* r)
        : RedisQuery(r),
          NodesCall(
              main_conf(r).fleet->scripts().nodes, main_conf(r).fleet->keys().alive,
              main_conf(r).fleet->keys().nodes)
    {
    }

    ngx_int_t ask()
    {
        if (!main_conf(r_).fleet->redis().client().send(*this)) {
            answered();
        }
        return wait();
    }

private:
    /// Takes several turns of the event loop, or a large fleet would delay other requests for
    /// milliseconds.
    ngx_int_t respond() override
    {
        if (!reader_) {
            reader_.emplace(nodes());
        }
        if (reader_->read(bytes_a_turn)) {
            return again();
        }
        if (!json_) {
            json_ = nodes_json(main_conf(r_), *reader_, answered_ && main_conf(r_).fleet->is_up());
            return again();
        }
        write_zones(*json_, reader_->nodes());
        write_busiest(*json_, reader_->nodes());
        json_->end_object();
        return send_response(r_, NGX_HTTP_OK, json_type, std::move(*json_).str() + "\n");
    }

    fleet::NodeList nodes()
    {
        const KnownNodes known(*main_conf(r_).fleet->known_nodes);
        if (!answered_) {
            return fleet::NodeList::unpacked(known.get());
        }
        known.set(list_.packed(KnownNodes::room));
        return std::move(list_);
    }

    void listed(fleet::NodeList list) noexcept override
    {
        list_ = std::move(list);
        answered_ = true;
        answered();
    }
    void on_failure(redis::Failure) noexcept override { answered(); }

    fleet::NodeList list_;
    bool answered_ = false;
    std::optional<fleet::NodesReader> reader_;
    std::optional<JsonText> json_;
};

}  // namespace

ngx_int_t show_fleet(ngx_http_request_t* r)
{
    if (main_conf(r).fleet == nullptr) {
        return send_error(
            r, NGX_HTTP_NOT_FOUND, "no fleet: that needs the directive ratelimit_fleet");
    }
    auto* query = nginx::make<FleetQuery>(r->pool, r);
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

}  // namespace ratelimit::http
