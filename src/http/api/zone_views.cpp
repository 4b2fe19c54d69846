#include "base/version.h"
#include "http/api/override_json.h"
#include "http/api/views.h"
#include "http/decision_count.h"
#include "limit/calendar.h"
#include "limit/json_text.h"
#include "limit/rate_text.h"
#include "nginx/clock.h"
#include "nginx/text.h"
#include "redis/hiredis_version.h"

#include <array>
#include <optional>
#include <span>

namespace ratelimit::http {

namespace {

constexpr std::size_t busiest_shown = 10;

void begin_node(JsonText& json, const MainConf& conf, bool writable)
{
    json.begin_object()
        .text("node", node_name(conf))
        .text("version", version)
        .text("hiredis", redis::hiredis_version())
        .flag("write", writable)
        .flag("fleet", conf.fleet != nullptr)
        .seconds("time", nginx::local_time())
        .begin_object("requests");
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
    const auto begin = or_null(policy.begin);
    json.begin_object("calendar")
        .text("time_zone", conf.calendar->name)
        .text("start", conf.start_text.empty() ? day : conf.start_text)
        .seconds("begin", begin)
        .seconds("end", begin ? std::optional(*begin + policy.rate.window) : std::nullopt)
        .end_object();
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
            .seconds("hold_seconds", zone.policy.rate.window)
            .number("in_flight", zone.memory().held_units().sum());
    } else {
        json.text("rate", conf.rate_text)
            .null("concurrency")
            .null("hold_seconds")
            .null("in_flight");
    }
    write_calendar(json, conf);
    const bool precise = traits_of(zone.policy.algorithm).precision && !conf.variable_rate();
    const auto limit = conf.variable_rate() ? std::nullopt : std::optional(zone.policy.limit());
    const auto redis = conf.redis == nullptr ? std::nullopt : std::optional(conf.redis->name);
    const bool local = conf.redis == nullptr || zone.clock == Clock::local;
    json.number("burst", zone.policy.burst)
        .seconds("precision", precise ? std::optional(zone.policy.bucket_width()) : std::nullopt)
        .seconds("block", or_null(zone.policy.block))
        .number("limit", limit)
        .text("redis", redis)
        .text("clock", local ? "local" : "redis")
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
        return or_null(state.blocked);
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
        const std::string_view key = counter.key.view();
        const bool rated = zone.variable_rate() && counter.key.rate.quota != 0;
        json.begin_object();
        write_key(json, &zone.zone, key);
        json.number("refused", counter.refused - counter.key.tried)
            .number("would_refuse", counter.key.tried)
            .number("error", counter.key.error)
            .number("per_second", static_cast<double>(counter.per_1000_s) / 1000)
            .number("since", std::uint64_t{ counter.key.first_s })
            .text("rate", rated ? std::optional(rate_text(counter.key.rate)) : std::nullopt)
            .seconds("blocked", known_block(zone, key));
        write_own_override(json, zone.zone, key);
        json.end_object();
    }
    json.end_array();
}

/// The members of a zone.
void write_zone(JsonText& json, const ZoneConf& zone)
{
    const ZoneMemory memory = zone.zone.memory();
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
        json.begin_object();
        write_zone(json, zone);
        json.end_object();
    }
    json.end_array();
    return json.finish();
}

std::string zone_json(const ZoneConf& zone)
{
    JsonText json;
    json.begin_object();
    write_zone(json, zone);
    return json.finish();
}

}  // namespace ratelimit::http
