#include "http/api/json_text.h"
#include "http/api/views.h"
#include "http/decision_count.h"
#include "http/version.h"
#include "nginx/clock.h"
#include "nginx/text.h"

#include <array>
#include <chrono>
#include <span>

namespace ratelimit::http {

namespace {

constexpr std::size_t busiest_shown = 10;

double seconds_of(microseconds time) noexcept
{
    return std::chrono::duration<double>(time).count();
}

void begin_node(JsonText& json, bool writable)
{
    json.begin_object()
        .text("node", nginx::view(const_cast<const ngx_cycle_t*>(ngx_cycle)->hostname))
        .text("version", version)
        .flag("write", writable)
        .seconds("time", seconds_of(nginx::local_time()));
}

void write_settings(JsonText& json, const ZoneConf& conf)
{
    const Zone& zone = conf.zone;
    json.text("name", zone.name)
        .text("key", conf.key_text)
        .flag("hash_key", conf.hash_key)
        .text("algorithm", name_of(zone.policy.algorithm))
        .text("rate", conf.rate_text);
    if (zone.policy.burst) {
        json.number("burst", *zone.policy.burst);
    } else {
        json.null("burst");
    }
    if (zone.policy.algorithm == Algorithm::sliding_window_buckets && !conf.variable_rate) {
        json.seconds("precision", seconds_of(zone.policy.bucket_width()));
    } else {
        json.null("precision");
    }
    if (conf.variable_rate) {
        json.null("limit");
    } else {
        json.number("limit", zone.policy.limit());
    }
    if (conf.redis != nullptr) {
        json.text("redis", conf.redis->name);
    } else {
        json.null("redis");
    }
    const bool local = conf.redis == nullptr || zone.clock == Clock::local;
    json.text("clock", local ? "local" : "redis")
        .flag("cache", conf.redis != nullptr && zone.cache)
        .number("lease", zone.lease)
        .number("nodes", zone.nodes)
        .number("size", std::uint64_t{ conf.zone.shared->shm.size });
}

/// By outcome and source: those that there were.
void write_counters(JsonText& json, const ZoneConf& zone)
{
    json.begin_object("counters");
    std::string_view open;
    for (const Count& count : counts_of(zone)) {
        if (count.count == 0) {
            continue;
        }
        if (open != count.outcome) {
            if (!open.empty()) {
                json.end_object();
            }
            json.begin_object(count.outcome);
            open = count.outcome;
        }
        json.number(count.source, count.count);
    }
    if (!open.empty()) {
        json.end_object();
    }
    json.end_object();
}

void write_busiest(JsonText& json, const ZoneConf& zone)
{
    std::array<TopRefused::Counter, busiest_shown> top;
    const std::size_t count = zone.zone.memory().top_refused().top(top, ngx_time());
    json.begin_array("busiest");
    for (const TopRefused::Counter& counter : std::span(top).first(count)) {
        char room[4 * KeyedNode::key_limit];
        json.begin_object()
            .text("key", nginx::escaped_for_log(counter.key.view(), room, sizeof(room)))
            .text("id", percent_encoded(counter.key.view()))
            .number("refused", counter.refused)
            .number("error", counter.key.error)
            .end_object();
    }
    json.end_array();
}

void write_zone(JsonText& json, const ZoneConf& zone)
{
    const ZoneMemory memory = zone.zone.memory();
    json.begin_object();
    write_settings(json, zone);
    write_counters(json, zone);
    json.number("keys", memory.keys()).number("evictions", memory.evictions());
    write_busiest(json, zone);
    json.end_object();
}

}  // namespace

std::string zones_json(const MainConf& conf, bool writable)
{
    JsonText json;
    begin_node(json, writable);
    json.begin_array("zones");
    for (const ZoneConf& zone : conf.zones) {
        write_zone(json, zone);
    }
    json.end_array().end_object();
    return json.str() + "\n";
}

std::string zone_json(const ZoneConf& zone)
{
    JsonText json;
    write_zone(json, zone);
    return json.str() + "\n";
}

}  // namespace ratelimit::http
