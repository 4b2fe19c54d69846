#include "base/version.h"
#include "http/api/json_text.h"
#include "http/api/override_json.h"
#include "http/api/views.h"
#include "http/decision_count.h"
#include "http/shown_key.h"
#include "limit/calendar.h"
#include "limit/percent_text.h"
#include "limit/rate_text.h"
#include "nginx/clock.h"
#include "nginx/text.h"
#include "redis/hiredis_version.h"

#include <array>
#include <chrono>
#include <optional>
#include <span>

namespace ratelimit::http {

namespace {

constexpr std::size_t busiest_shown = 10;

double seconds_of(microseconds time) noexcept
{
    return std::chrono::duration<double>(time).count();
}

void begin_node(JsonText& json, const MainConf& conf, bool writable)
{
    json.begin_object()
        .text("node", node_name(conf))
        .text("version", version)
        .text("hiredis", redis::hiredis_version())
        .flag("write", writable)
        .flag("fleet", conf.fleet != nullptr)
        .seconds("time", seconds_of(nginx::local_time()));
    json.begin_object("requests");
    if (conf.requests != nullptr) {
        for (const Count& count : counts_of_all(ZoneMemory(*conf.requests))) {
            if (count.count != 0) {
                json.number(count.outcome, count.count);
            }
        }
    }
    json.end_object();
}

/// The zone's policy in the current calendar period, unless the rate or its start is a variable.
Policy current_policy(const ZoneConf& conf) noexcept
{
    Policy policy = conf.zone.policy;
    if (conf.start_text.empty()) {
        enter_period(policy, nginx::local_time());
    }
    return policy;
}

void write_calendar(JsonText& json, const ZoneConf& conf)
{
    if (conf.calendar == nullptr) {
        json.null("calendar");
        return;
    }
    const Policy policy = current_policy(conf);
    const std::string day = std::to_string(policy.start_day);
    json.begin_object("calendar")
        .text("time_zone", conf.calendar->name)
        .text("start", conf.start_text.empty() ? day : conf.start_text);
    if (policy.begin.count() != 0) {
        json.seconds("begin", seconds_of(policy.begin))
            .seconds("end", seconds_of(policy.begin + policy.rate.window));
    } else {
        json.null("begin").null("end");
    }
    json.end_object();
}

void write_settings(JsonText& json, const ZoneConf& conf)
{
    const Zone& zone = conf.zone;
    json.text("name", zone.name).text("key", conf.key_text).flag("hash_key", conf.hash_key);
    if (zone.addresses) {
        json.begin_object("address_bits")
            .number("ipv4", std::int64_t{ zone.addresses->ipv4_bits })
            .number("ipv6", std::int64_t{ zone.addresses->ipv6_bits })
            .end_object();
    } else {
        json.null("address_bits");
    }
    json.text("algorithm", name_of(zone.policy.algorithm));
    if (counts_at_one_time(zone.policy.algorithm)) {
        json.null("rate")
            .number("concurrency", zone.policy.rate.quota)
            .seconds("hold_seconds", seconds_of(zone.policy.rate.window))
            .number("in_flight", zone.memory().held_units().sum());
    } else {
        json.text("rate", conf.rate_text)
            .null("concurrency")
            .null("hold_seconds")
            .null("in_flight");
    }
    write_calendar(json, conf);
    if (zone.policy.burst) {
        json.number("burst", *zone.policy.burst);
    } else {
        json.null("burst");
    }
    if (traits_of(zone.policy.algorithm).precision && !conf.variable_rate()) {
        json.seconds("precision", seconds_of(zone.policy.bucket_width()));
    } else {
        json.null("precision");
    }
    if (zone.policy.block.count() > 0) {
        json.seconds("block", seconds_of(zone.policy.block));
    } else {
        json.null("block");
    }
    if (conf.variable_rate()) {
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
        .number("ahead", zone.ahead)
        .number("nodes", zone.node_count())
        .number("size", std::uint64_t{ conf.zone.shared->shm.size });
}

/// Decisions by outcome and source, without those that did not occur.
void write_counters(JsonText& json, const ZoneConf& zone)
{
    json.begin_object("counters");
    std::string_view open;
    for (const Count& count : counts_of(zone.zone.memory())) {
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

/// The rest of the key's block, as far as this node knows. With a variable rate in Redis, the
/// policy by which a refusal is remembered is not known.
std::optional<microseconds> known_block(const ZoneConf& conf, std::string_view key)
{
    const Zone& zone = conf.zone;
    if (zone.policy.block.count() == 0 || conf.variable_rate()) {
        return std::nullopt;
    }
    if (conf.redis == nullptr) {
        const Verdict state =
            zone.memory().local_limiter().peek({ key, zone.policy }, nginx::local_time());
        return state.blocked.count() == 0 ? std::nullopt : std::optional{ state.blocked };
    }
    const bool local = zone.clock == Clock::local;
    const auto denial = zone.memory().denials().find(
        { key, zone.policy_hash(current_policy(conf)), 1 },
        local ? nginx::local_time() : nginx::monotonic_time());
    return denial && denial->state.blocked.count() > 0 ? std::optional{ denial->state.blocked }
                                                       : std::nullopt;
}

void write_busiest(JsonText& json, const ZoneConf& zone)
{
    std::array<TopRefused::Counter, busiest_shown> top;
    const std::size_t count = zone.zone.memory().top_refused().top(top, ngx_time());
    json.begin_array("busiest");
    for (const TopRefused::Counter& counter : std::span(top).first(count)) {
        json.begin_object()
            .text("key", shown_key(&zone.zone, counter.key.view()))
            .text("id", percent_encoded(counter.key.view()))
            .number("refused", counter.refused - counter.key.tried)
            .number("would_refuse", counter.key.tried)
            .number("error", counter.key.error)
            .seconds("per_second", static_cast<double>(counter.per_1000_s) / 1000)
            .number("since", std::uint64_t{ counter.key.first_s });
        if (zone.variable_rate() && counter.key.rate.quota != 0) {
            json.text("rate", rate_text(counter.key.rate));
        } else {
            json.null("rate");
        }
        if (const auto rest = known_block(zone, counter.key.view())) {
            json.seconds("blocked", seconds_of(*rest));
        } else {
            json.null("blocked");
        }
        write_own_override(json, zone.zone, counter.key.view());
        json.end_object();
    }
    json.end_array();
}

void write_zone(JsonText& json, const ZoneConf& zone)
{
    const ZoneMemory memory = zone.zone.memory();
    json.begin_object();
    write_settings(json, zone);
    write_own_override(json, zone.zone, {});
    json.number("overrides", override_count(zone.zone));
    write_counters(json, zone);
    json.number("cost", memory.counters().sum(ZoneCounters::Units::passed))
        .number("charged", memory.counters().sum(ZoneCounters::Units::charged))
        .number("refunded", memory.counters().sum(ZoneCounters::Units::refunded))
        .number("blocks", memory.counters().sum(ZoneCounters::Units::blocked))
        .number("near_limit", memory.counters().sum(ZoneCounters::Units::near_limit))
        .number("highest_use", std::uint64_t{ highest_use_of_an_hour(memory) });
    json.number("keys", memory.keys()).number("evictions", memory.evictions());
    write_busiest(json, zone);
    json.end_object();
}

}  // namespace

std::string_view node_name(const MainConf& conf) noexcept
{
    if (conf.fleet != nullptr) {
        return conf.fleet->name;
    }
    return nginx::view(const_cast<const ngx_cycle_t*>(ngx_cycle)->hostname);
}

std::string zones_json(const MainConf& conf, bool writable)
{
    JsonText json;
    begin_node(json, conf, writable);
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
