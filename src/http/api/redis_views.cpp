#include "http/api/views.h"
#include "limit/json_text.h"
#include "nginx/text.h"

#include <numeric>

namespace ratelimit::http {

namespace {

/// The latency in seconds below which this part (0 to 1) of all calls lies. Empty: no calls.
std::optional<Seconds> latency_quantile(const RedisCounters::Latencies& latencies, double part)
{
    const auto& bounds = redis::ServerStats::bounds;
    const auto all = std::accumulate(latencies.begin(), latencies.end(), std::uint64_t{ 0 });
    if (all == 0) {
        return std::nullopt;
    }
    double left = part * static_cast<double>(all);
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        const auto count = static_cast<double>(latencies[i]);
        if (count > 0 && left <= count) {
            const auto from = i == 0 ? 0.0 : static_cast<double>(bounds[i - 1].count());
            const auto to = static_cast<double>(bounds[i].count());
            return Microseconds{ from + (to - from) * left / count };
        }
        left -= count;
    }
    return bounds.back();
}

void write_latency(JsonText& json, const RedisCounters::Latencies& latencies)
{
    struct Quantile {
        std::string_view name;
        double part;
    };
    json.begin_object("latency");
    for (const Quantile& quantile : { Quantile{ "p50", 0.5 }, Quantile{ "p99", 0.99 } }) {
        json.seconds(quantile.name, latency_quantile(latencies, quantile.part));
    }
    json.end_object();
}

/// "standalone", "ring", "cluster" or "sentinel".
std::string_view topology_of(const RedisBlock& block) noexcept
{
    switch (block.options.topology) {
    case redis::Topology::cluster:
        return "cluster";
    case redis::Topology::sentinel:
        return "sentinel";
    default:
        return block.options.servers.size() == 1 ? "standalone" : "ring";
    }
}

void write_server(JsonText& json, const RedisBlock& block, const RedisCounters::Server& server)
{
    json.begin_object().text("server", server.name);
    // In clusters and behind sentinels, checks go to masters only.
    const bool ring = block.options.topology == redis::Topology::ring;
    json.text("role", ring ? std::nullopt : std::optional("master"))
        .text("state", server.state())
        .number("workers_up", std::uint64_t{ server.workers_up })
        .number("workers", std::uint64_t{ worker_count() });
    write_latency(json, server.recent);
    json.number("calls", server.counts.calls).begin_object("errors");
    for (std::size_t i = 0; i < redis_error_names.size(); ++i) {
        json.number(redis_error_names[i], server.counts.errors[i]);
    }
    json.end_object().number("reconnects", server.counts.reconnects).end_object();
}

}  // namespace

std::string redis_json(const MainConf& conf)
{
    JsonText json;
    json.begin_object().text("node", node_name(conf)).begin_array("redis");
    for (const RedisBlock& block : conf.redis) {
        if (block.scripts.size() == 0) {
            continue;  // no limit uses it
        }
        json.begin_object().text("name", block.name).text("topology", topology_of(block));
        json.begin_array("servers");
        for (const auto& server : block.servers()) {
            write_server(json, block, server);
        }
        json.end_array().end_object();
    }
    json.end_array();
    return json.finish();
}

}  // namespace ratelimit::http
