#include "http/api/fleet_view.h"

#include "conf/conf.h"
#include "fleet/nodes_call.h"
#include "http/api/json_text.h"
#include "http/api/override_json.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "http/shown_key.h"
#include "limit/percent_text.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"
#include "nginx/text.h"
#include "nginx/timer.h"
#include "node/clocks.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit::http {

namespace {

constexpr std::size_t bytes_a_turn = std::size_t{ 32 } * 1024;  // of reports: some 0.2 ms

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
        .number("uptime", node.report.uptime_us / 1'000'000)
        .number("passed", node.report.passed)
        .number("refused", node.report.refused)
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

void write_history(JsonText& json, const fleet::FleetHistory& history)
{
    constexpr std::int64_t minute = 60;
    const auto write = [&json](std::string_view name, const std::vector<std::uint64_t>& values) {
        json.begin_array(name);
        for (const std::uint64_t value : values) {
            json.number({}, value);
        }
        json.end_array();
    };
    json.begin_object("history").number("step", minute).number("start", history.start);
    write("passed", history.passed);
    write("refused", history.refused);
    json.end_object();
}

void write_zones(JsonText& json, MainConf& conf, const std::vector<fleet::FleetNode>& nodes)
{
    json.begin_array("zones");
    for (const fleet::FleetZone& zone : fleet::sum_zones(nodes)) {
        json.begin_object()
            .text("name", zone.name)
            .number("nodes", zone.nodes)
            .number("passed", zone.passed)
            .number("refused", zone.refused)
            .number("ahead", zone.ahead)
            .number("highest_use", zone.highest_use);
        write_texts(json, "limits", zone.limits);
        write_texts(json, "settings_differ", zone.settings_differ);
        json.begin_array("differences");
        for (const auto& [setting, names] : zone.differences) {
            json.begin_object().text("setting", setting);
            write_texts(json, "nodes", names);
            json.end_object();
        }
        json.end_array();
        if (const ZoneConf* own = conf.zone_named(zone.name)) {
            write_zone_override(json, own->zone);
        } else {
            json.null("override");
        }
        json.end_object();
    }
    json.end_array();
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
            .seconds("per_second", static_cast<double>(key.per_1000_s) / 1000)
            .number("since", key.since)
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

/// A request that waits for the answer that is being made.
class NodesQuery final : public RedisQuery {
public:
    explicit NodesQuery(ngx_http_request_t* r);
    ~NodesQuery() override;
    using RedisQuery::answered;

    ngx_int_t ask();

private:
    ngx_int_t respond() override;
};

/// The answer of /fleet: made by each worker once a second at most, for all requests that come
/// meanwhile. It is no part of a request, so that a client who leaves ends nothing that others wait
/// for. It lives as long as its worker.
class FleetAnswer final : private fleet::NodesCall {
public:
    explicit FleetAnswer(MainConf& conf)
        : NodesCall(
            conf.fleet->scripts().nodes, conf.fleet->keys().alive, conf.fleet->keys().nodes),
          conf_(conf),
          next_turn_([this] { make(); })
    {
    }

    /// This worker's. A process without workers has a new one after a reload.
    static FleetAnswer& of(MainConf& conf)
    {
        static FleetAnswer* answer = nullptr;
        if (answer == nullptr || &answer->conf_ != &conf) {
            answer = new FleetAnswer(conf);  // never destroyed: a call may be in flight at exit
        }
        return *answer;
    }

    bool is_fresh() const noexcept
    {
        return made_ && node_clock.monotonic() - *made_ < std::chrono::seconds{ 1 };
    }
    const std::string& text() const noexcept { return text_; }

    void add(NodesQuery& query)
    {
        waiting_.push_back(&query);
        if (waiting_.size() == 1 && !running_) {
            running_ = true;
            answered_ = false;
            routing = {};
            if (!conf_.fleet->redis().client().send(*this)) {
                next_turn_.start(milliseconds{ 1 });
            }
        }
    }
    void remove(NodesQuery& query) noexcept { std::erase(waiting_, &query); }

private:
    /// Takes several turns of the event loop, or a large fleet would delay other requests for
    /// milliseconds.
    void make() noexcept
    {
        const bool again = nginx::guarded(ngx_cycle->log, false, [this] { return step(); });
        if (again) {
            next_turn_.start(milliseconds{ 1 });
            return;
        }
        reader_.reset();
        json_.reset();
        running_ = false;
        made_ = node_clock.monotonic();
        for (NodesQuery* query : waiting_) {
            query->answered();
        }
        waiting_.clear();
    }

    /// True: there is more to do.
    bool step()
    {
        if (!reader_) {
            text_.clear();
            reader_.emplace(std::exchange(list_, {}));
        }
        if (!json_) {
            if (!reader_->read(bytes_a_turn)) {
                json_ = nodes_json(conf_, *reader_, answered_ && conf_.fleet->is_up());
            }
            return true;
        }
        write_history(*json_, reader_->history());
        write_zones(*json_, conf_, reader_->nodes());
        write_busiest(*json_, conf_, reader_->nodes());
        json_->end_object();
        text_ = std::move(*json_).str() + "\n";
        return false;
    }

    void listed(fleet::NodeList list) noexcept override
    {
        list_ = std::move(list);
        answered_ = true;
        next_turn_.start(milliseconds{ 1 });
    }
    void on_failure(redis::Failure) noexcept override { next_turn_.start(milliseconds{ 1 }); }

    MainConf& conf_;
    nginx::NgxTimer next_turn_;
    std::vector<NodesQuery*> waiting_;
    bool running_ = false;
    bool answered_ = false;
    fleet::NodeList list_;
    std::optional<fleet::NodesReader> reader_;
    std::optional<JsonText> json_;
    std::string text_;  // empty: it could not be made
    std::optional<microseconds> made_;
};

NodesQuery::NodesQuery(ngx_http_request_t* r) : RedisQuery(r) {}

NodesQuery::~NodesQuery()
{
    FleetAnswer::of(main_conf(r_)).remove(*this);
}

ngx_int_t NodesQuery::ask()
{
    FleetAnswer& answer = FleetAnswer::of(main_conf(r_));
    if (answer.is_fresh()) {
        return respond();
    }
    answer.add(*this);
    return wait();
}

ngx_int_t NodesQuery::respond()
{
    const std::string& text = FleetAnswer::of(main_conf(r_)).text();
    return text.empty() ? ngx_int_t{ NGX_HTTP_INTERNAL_SERVER_ERROR }
                        : send_response(r_, NGX_HTTP_OK, json_type, text);
}

}  // namespace

ngx_int_t show_fleet(ngx_http_request_t* r)
{
    if (main_conf(r).fleet == nullptr) {
        return send_error(
            r, NGX_HTTP_NOT_FOUND, "no fleet: that needs the directive ratelimit_fleet");
    }
    auto* query = nginx::make<NodesQuery>(r->pool, r);
    return query == nullptr ? ngx_int_t{ NGX_ERROR } : query->ask();
}

}  // namespace ratelimit::http
