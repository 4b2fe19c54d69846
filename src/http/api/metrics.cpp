#include "base/version.h"
#include "http/api/override_json.h"
#include "http/api/views.h"
#include "http/decision_count.h"
#include "http/node_figures.h"
#include "redis/hiredis_version.h"

#include <array>
#include <cstdio>
#include <utility>
#include <vector>

namespace ratelimit::http {

namespace {

struct Label {
    std::string_view name;
    std::string_view value;
};
using Labels = std::initializer_list<Label>;

/// Writes Prometheus's text format. `family` begins a family; `sample` adds samples to it.
class MetricsText {
public:
    void family(std::string_view name, std::string_view type, std::string_view help)
    {
        name_ = name;
        text_ += "# HELP ";
        text_ += name;
        text_ += " ";
        text_ += help;
        text_ += "\n# TYPE ";
        text_ += name;
        text_ += " ";
        text_ += type;
        text_ += "\n";
    }

    void sample(Labels labels, std::uint64_t value, std::string_view suffix = {})
    {
        begin_sample(labels, suffix);
        text_ += std::to_string(value);
        text_ += "\n";
    }

    void sample(Labels labels, double value, std::string_view suffix = {})
    {
        std::array<char, 32> digits{};
        std::snprintf(digits.data(), digits.size(), "%.6f", value);
        begin_sample(labels, suffix);
        text_ += digits.data();
        text_ += "\n";
    }

    std::string& str() noexcept { return text_; }

private:
    void begin_sample(Labels labels, std::string_view suffix)
    {
        text_ += name_;
        text_ += suffix;
        char before = '{';
        for (const Label& label : labels) {
            text_ += before;
            text_ += label.name;
            text_ += "=\"";
            for (const char character : label.value) {
                if (character == '"' || character == '\\') {
                    text_ += '\\';
                }
                text_ += character >= ' ' && character < '\x7f' ? character : '?';
            }
            text_ += '"';
            before = ',';
        }
        text_ += labels.size() == 0 ? " " : "} ";
    }

    std::string text_;
    std::string_view name_;
};

void write_units(MetricsText& text, const MainConf& conf, ZoneCounters::Units which)
{
    for (const ZoneConf& zone : conf.zones) {
        text.sample({ { "zone", zone.zone.name } }, zone.zone.memory().counters().sum(which));
    }
}

void write_in_flight(MetricsText& text, const MainConf& conf)
{
    bool first = true;
    for (const ZoneConf& zone : conf.zones) {
        if (!counts_at_one_time(zone.zone.policy.algorithm)) {
            continue;
        }
        if (std::exchange(first, false)) {
            text.family(
                "ratelimit_in_flight", "gauge",
                "What requests of this node hold now of limits of requests at one time.");
        }
        text.sample({ { "zone", zone.zone.name } }, zone.zone.memory().held_units().sum());
    }
}

void write_requests(MetricsText& text, const ZoneMemory& requests)
{
    text.family(
        "ratelimit_node_requests_total", "counter",
        "Requests with limits by what was decided on them, each counted once.");
    for (const Count& count : counts_of_all(requests)) {
        text.sample({ { "result", count.outcome } }, count.count);
    }
}

void write_zones(MetricsText& text, const MainConf& conf)
{
    if (conf.requests != nullptr) {
        write_requests(text, ZoneMemory(*conf.requests));
    }
    text.family(
        "ratelimit_requests_total", "counter", "Decisions of limits by zone, result and source.");
    for (const ZoneConf& zone : conf.zones) {
        for (const Count& count : counts_of(zone.zone.memory())) {
            text.sample(
                { { "zone", zone.zone.name },
                  { "result", count.outcome },
                  { "source", count.source } },
                count.count);
        }
    }
    text.family("ratelimit_cost_total", "counter", "Cost of requests that passed, as settled.");
    write_units(text, conf, ZoneCounters::Units::passed);
    text.family("ratelimit_charged_total", "counter", "Cost that was charged after the decision.");
    write_units(text, conf, ZoneCounters::Units::charged);
    text.family(
        "ratelimit_refunded_total", "counter", "Cost that was refunded after the decision.");
    write_units(text, conf, ZoneCounters::Units::refunded);
    text.family("ratelimit_blocks_total", "counter", "Blocks that began with a refusal (block=).");
    write_units(text, conf, ZoneCounters::Units::blocked);
    text.family(
        "ratelimit_ahead_beyond_total", "counter",
        "Cost that passed ahead of Redis beyond the limit (ahead=).");
    write_units(text, conf, ZoneCounters::Units::ahead_beyond);
    text.family(
        "ratelimit_near_limit_total", "counter",
        "Requests that passed and left less than a fifth of the limit.");
    write_units(text, conf, ZoneCounters::Units::near_limit);
    text.family(
        "ratelimit_zone_highest_use_ratio", "gauge",
        "Of the keys of the last five to ten minutes, the highest share of its limit in use.");
    for (const ZoneConf& zone : conf.zones) {
        roll_history(zone.zone.memory());
        text.sample(
            { { "zone", zone.zone.name } },
            static_cast<double>(zone.zone.memory().history().highest_use(1)) / 100);
    }
    write_in_flight(text, conf);
    text.family(
        "ratelimit_zone_keys", "gauge",
        "Keys in a zone's shared memory: refused, leased or counted there.");
    for (const ZoneConf& zone : conf.zones) {
        text.sample({ { "zone", zone.zone.name } }, zone.zone.memory().keys());
    }
    text.family(
        "ratelimit_zone_evictions_total", "counter",
        "Keys that were evicted because a zone's shared memory was full.");
    for (const ZoneConf& zone : conf.zones) {
        text.sample({ { "zone", zone.zone.name } }, zone.zone.memory().evictions());
    }
}

void write_settings(MetricsText& text, const MainConf& conf)
{
    text.family(
        "ratelimit_zone_settings", "gauge",
        "1; the digest differs between nodes whose settings of a zone differ.");
    for (const ZoneConf& zone : conf.zones) {
        const std::string digest = settings_digest(zone);
        std::string_view redis;  // empty: counted in this node's memory
        if (zone.redis != nullptr) {
            redis = zone.redis->name;
        }
        text.sample(
            { { "zone", zone.zone.name }, { "redis", redis }, { "digest", digest } },
            std::uint64_t{ 1 });
    }
}

void write_fleet(MetricsText& text, const MainConf& conf)
{
    const FleetMember& fleet = *conf.fleet;
    text.family("ratelimit_fleet_nodes", "gauge", "Live nodes of the fleet, as last known.");
    text.sample({}, static_cast<std::uint64_t>(fleet.shared().nodes()));
    text.family(
        "ratelimit_fleet_up", "gauge", "Whether the fleet's Redis answered in the last seconds.");
    text.sample({}, std::uint64_t{ fleet.is_up() });
    text.family(
        "ratelimit_overrides", "gauge", "Overrides of keys and of the whole zone on this node.");
    for (const ZoneConf& zone : conf.zones) {
        text.sample({ { "zone", zone.zone.name } }, override_count(zone.zone));
    }
    text.family(
        "ratelimit_overrides_left_out", "gauge",
        "Overrides that are not in force on this node because its memory is full.");
    text.sample({}, fleet.shared().shared().left_out.load());
}

struct BlockServers {
    const RedisBlock& block;
    std::vector<RedisCounters::Server> servers;
};

template <class Visit>
void each_server(std::span<const BlockServers> all, Visit&& visit)
{
    for (const BlockServers& servers : all) {
        for (const RedisCounters::Server& server : servers.servers) {
            visit(servers.block.name, server);
        }
    }
}

void write_latencies(MetricsText& text, std::string_view redis, const RedisCounters::Server& server)
{
    const auto& latencies = server.counts.latencies;
    const auto& bounds = redis::ServerStats::bounds;
    std::uint64_t below = 0;
    for (std::size_t i = 0; i < latencies.size(); ++i) {
        std::array<char, 32> bound{ "+Inf" };
        if (i < bounds.size()) {
            std::snprintf(
                bound.data(), bound.size(), "%g", static_cast<double>(bounds[i].count()) / 1e6);
        }
        below += latencies[i];
        text.sample(
            { { "redis", redis }, { "server", server.name }, { "le", bound.data() } }, below,
            "_bucket");
    }
    const Labels labels = { { "redis", redis }, { "server", server.name } };
    text.sample(labels, static_cast<double>(server.counts.total_us) / 1e6, "_sum");
    text.sample(labels, below, "_count");
}

void write_states(MetricsText& text, std::span<const BlockServers> all)
{
    text.family("ratelimit_redis_up", "gauge", "Whether at least one worker has the server as up.");
    each_server(all, [&](std::string_view redis, const RedisCounters::Server& server) {
        text.sample(
            { { "redis", redis }, { "server", server.name } },
            std::uint64_t{ server.workers_up > 0 });
    });
    for (const BlockServers& servers : all) {
        if (servers.servers.empty()) {  // no master or cluster map is known
            text.sample({ { "redis", servers.block.name }, { "server", "" } }, std::uint64_t{ 0 });
        }
    }
    text.family(
        "ratelimit_breaker_open", "gauge", "Workers whose circuit breaker of a server is open.");
    each_server(all, [&](std::string_view redis, const RedisCounters::Server& server) {
        text.sample(
            { { "redis", redis }, { "server", server.name } },
            std::uint64_t{ server.breakers_open });
    });
}

void write_servers(MetricsText& text, std::span<const BlockServers> all)
{
    write_states(text, all);
    text.family(
        "ratelimit_redis_request_duration_seconds", "histogram",
        "Duration of calls to Redis that were answered in time.");
    each_server(all, [&](std::string_view redis, const RedisCounters::Server& server) {
        write_latencies(text, redis, server);
    });
    text.family(
        "ratelimit_redis_errors_total", "counter",
        "Checks that timed out, connections lost or not made, and error replies.");
    each_server(all, [&](std::string_view redis, const RedisCounters::Server& server) {
        for (std::size_t i = 0; i < redis_error_names.size(); ++i) {
            text.sample(
                { { "redis", redis }, { "server", server.name }, { "kind", redis_error_names[i] } },
                server.counts.errors[i]);
        }
    });
    text.family("ratelimit_redis_reconnects_total", "counter", "Reconnections to Redis.");
    each_server(all, [&](std::string_view redis, const RedisCounters::Server& server) {
        text.sample({ { "redis", redis }, { "server", server.name } }, server.counts.reconnects);
    });
}

}  // namespace

std::string metrics_text(MainConf& conf)
{
    MetricsText text;
    text.family("ratelimit_build_info", "gauge", "The module's version, and hiredis's.");
    const std::string hiredis = redis::hiredis_version();
    text.sample({ { "version", version }, { "hiredis", hiredis } }, std::uint64_t{ 1 });
    write_zones(text, conf);
    write_settings(text, conf);
    if (conf.fleet != nullptr) {
        write_fleet(text, conf);
    }

    std::vector<BlockServers> all;
    for (const RedisBlock& block : conf.redis) {
        if (block.scripts.size() == 0) {
            continue;  // no limit and no fleet uses it
        }
        all.push_back({ block, block.servers() });
    }
    if (!all.empty()) {
        write_servers(text, all);
        text.family(
            "ratelimit_coalesced_total", "counter",
            "Checks that waited for another check of the same keys, and then shared a call.");
        for (const BlockServers& servers : all) {
            text.sample(
                { { "redis", servers.block.name } },
                RedisCounters(*servers.block.counters).block(servers.block.name).coalesced);
        }
        text.family(
            "ratelimit_settlements_failed_total", "counter",
            "Refunds, charges and beginnings of blocks without a good reply.");
        for (const BlockServers& servers : all) {
            text.sample(
                { { "redis", servers.block.name } },
                RedisCounters(*servers.block.counters).block(servers.block.name).failed);
        }
    }
    return std::move(text.str());
}

}  // namespace ratelimit::http
