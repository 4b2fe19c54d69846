#include "http/api/key_views.h"

#include "http/api/key_peek.h"
#include "http/api/override_json.h"
#include "http/api/override_queries.h"
#include "http/api/path.h"
#include "http/api/redis_query.h"
#include "http/api/response.h"
#include "limit/calendar.h"
#include "limit/json_text.h"
#include "limit/rate_text.h"
#include "nginx/clock.h"
#include "redis/command.h"
#include "redis/reply_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit::http {

namespace {

constexpr std::array<std::string_view, 5> override_names = { "unknown", "rate", "concurrency",
                                                             "block", "unlimited" };
constexpr std::string_view no_start =
    "the day on which a month begins is a variable, expected an argument start=";
constexpr std::string_view no_rate =
    "the zone's rate is a variable, and the key was not refused lately, expected an argument rate=";

ngx_int_t send_state(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, const Policy& policy,
    Verdict state, std::string_view source, std::optional<bool> counted)
{
    const auto override = zone.zone.override_of(key);
    const auto ends = override ? zone.zone.rest_of(*override) : std::nullopt;
    if (ends && override->kind != Override::Kind::unlimited) {
        end_with_override(state, policy, *ends);
    }
    const auto rate =
        counts_at_one_time(policy.algorithm) ? std::nullopt : std::optional(rate_text(policy.rate));
    const auto blocked = state.blocked.count() == 0
        ? std::nullopt
        : std::optional(std::min(state.blocked, state.ends));
    JsonText json;
    json.begin_object().text("zone", zone.zone.name);
    write_key(json, &zone.zone, key);
    json.text("rate", rate)
        .number("limit", policy.limit())
        .number("remaining", state.remaining)
        .seconds("reset", shown_reset(policy, state))
        .seconds("retry_after", shown_retry(state))
        .seconds("blocked", blocked);
    if (override) {
        json.text("override", override_names[static_cast<std::size_t>(override->kind)]);
    }
    json.text("source", source);
    write_counted(json, zone, key, counted);
    return send_response(r, NGX_HTTP_OK, json_type, json.finish());
}

/// Sends what Redis has of a key or, if an override blocks it, that and whether Redis counts
/// anything under it.
class KeyQuery final : public KeyPeek {
public:
    KeyQuery(
        ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, const Policy& policy,
        const std::optional<Verdict>& block)
        : KeyPeek(r, zone, key, policy), block_(block)
    {
    }

private:
    ngx_int_t peeked(const Verdict* state) override
    {
        if (block_) {
            return send_state(r_, zone_, key_, policy_, *block_, "override", counted());
        }
        return state != nullptr ? send_state(r_, zone_, key_, policy_, *state, "redis", counted())
                                : send_error(
                                    r_, NGX_HTTP_SERVICE_UNAVAILABLE,
                                    "Redis does not answer, or answers with an error");
    }

    const std::optional<Verdict> block_;
};

/// Deletes a key's records in Redis, one after another: a cluster that moves their slot may have
/// some of them on one server and some on another.
class KeyDeletion final : public RedisQuery, private redis::Call {
public:
    KeyDeletion(
        ngx_http_request_t* r, const ZoneConf& zone, std::string_view key,
        std::vector<std::string> redis_keys)
        : RedisQuery(r), zone_(zone), key_(key), redis_keys_(std::move(redis_keys))
    {
        repeatable = true;
    }

    ngx_int_t ask()
    {
        return zone_.redis->client().send(*this)
            ? wait()
            : send_error(r_, NGX_HTTP_SERVICE_UNAVAILABLE, no_answer);
    }

private:
    ngx_int_t respond() override
    {
        if (!redis_keys_.empty()) {
            return send_error(
                r_, NGX_HTTP_SERVICE_UNAVAILABLE,
                refused_ ? "Redis answered with an error" : no_answer);
        }
        return announce_freed(r_, zone_, key_, found_);
    }

    std::string_view routing_key() const noexcept override { return redis_keys_.back(); }
    void write(redis::CommandBuffer& command) const override
    {
        command.whole(redis::plain_command({ "DEL", redis_keys_.back() }));
    }
    bool on_reply(const redisReply& reply) noexcept override
    {
        found_ = found_ || !redis::is_zero(reply);
        redis_keys_.pop_back();
        if (redis_keys_.empty()) {
            found_ = zone_.zone.memory().forget_key(key_) || found_;
            answered();
        } else {
            routing = {};
            if (!zone_.redis->client().send(*this)) {
                answered();
            }
        }
        return true;
    }
    void ended(redis::Fate fate) noexcept override
    {
        using redis::Fate;
        refused_ = fate == Fate::refused || fate == Fate::one_by_one || fate == Fate::failed;
        answered();
    }

    const ZoneConf& zone_;
    const std::string key_;
    std::vector<std::string> redis_keys_;  // that are not deleted yet
    bool refused_ = false;
    bool found_ = false;  // one of them existed, or this node had counted the key
};

/// The override of the key or zone that changes what is counted. Empty: there is none.
std::optional<Override> changed_policy(const ZoneConf& zone, std::string_view key)
{
    const auto override = zone.zone.override_of(key);
    const bool changes = override
        && (override->kind == Override::Kind::rate
            || override->kind == Override::Kind::concurrency);
    return changes ? override : std::nullopt;
}

/// Sets rate and burst of `policy` if the arguments have them. Returns the error; empty: none.
std::string_view read_policy(std::string_view arguments, Policy& policy)
{
    if (const auto rate = api_argument(arguments, "rate"); rate.given) {
        if (counts_at_one_time(policy.algorithm)) {
            return "the zone counts requests at one time, which have no rate";
        }
        const auto parse = policy.calendar != nullptr ? parse_calendar_rate : parse_rate;
        const auto parsed = rate.value ? parse(*rate.value) : std::nullopt;
        if (!parsed) {
            return "invalid rate";
        }
        policy.rate = *parsed;
    }
    if (const auto burst = api_argument(arguments, "burst"); burst.given) {
        policy.burst = burst.value ? parse_number(*burst.value, 0, max_quota) : std::nullopt;
        if (!policy.burst || !keeps_arrival_time(policy.algorithm)) {
            return "invalid burst";
        }
    }
    return policy.rate.quota == 0 || policy.possible() ? ""
                                                       : "no limit can have this rate and burst";
}

/// Sets the calendar period in which requests of the key count now. Returns the error; empty: none.
std::string_view find_period(std::string_view arguments, const ZoneConf& zone, Policy& policy)
{
    const auto start = api_argument(arguments, "start");
    if (start.given) {
        const auto day = start.value ? parse_start_day(*start.value) : std::nullopt;
        if (!day || policy.calendar == nullptr) {
            return "invalid start";
        }
        policy.start_day = *day;
    } else if (!zone.start_text.empty() && policy.rate.period == Period::month) {
        return no_start;
    }
    enter_period(policy, nginx::local_time());
    return {};
}

}  // namespace

ngx_int_t show_key(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view arguments)
{
    Policy policy = zone.zone.policy;
    if (const auto wrong = read_policy(arguments, policy); !wrong.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, wrong);
    }
    if (const auto override = changed_policy(zone, key)) {
        policy = zone.zone.policy;
        apply(*override, policy);
    }
    use_last_rate(zone, key, policy);
    if (policy.rate.quota == 0) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, no_rate);
    }
    if (const auto wrong = find_period(arguments, zone, policy); !wrong.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, wrong);
    }
    // Peeking at timed counts removes those that have left the window, so it needs the zone's
    // window.
    const bool own_record =
        zone.variable_rate() || policy.override_record != 0 || policy.rate == zone.zone.policy.rate;
    if (zone.redis == nullptr && !own_record && LocalLimiter::has_timed_counts(policy.algorithm)) {
        return send_error(
            r, NGX_HTTP_BAD_REQUEST,
            "rate= must be the zone's rate: this node's memory counts by this algorithm");
    }
    std::optional<Verdict> block;
    if (const auto override = zone.zone.override_of(key);
        override && override->kind == Override::Kind::block) {
        const auto rest = zone.zone.rest_of(*override);
        block = blocked(1, rest.value_or(endless_block));
    }
    if (zone.redis != nullptr) {
        return ask<KeyQuery>(r, zone, key, policy, block);
    }
    const Verdict state = peek_local(zone, key, policy);
    const bool counted = is_counted(zone, key, policy, state);
    return send_state(
        r, zone, key, policy, block.value_or(state), block ? "override" : "local", counted);
}

ngx_int_t free_key(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::string_view arguments)
{
    if (zone.redis == nullptr) {
        return announce_freed(r, zone, key, zone.zone.memory().forget_key(key));
    }
    std::vector<std::string> records;
    std::string_view no_period;
    const auto add = [&](Policy policy) {
        if (no_period.empty()) {
            no_period = find_period(arguments, zone, policy);
        }
        records.push_back(redis_key_of(zone, key, policy));
    };
    const auto add_override = [&](const Override& override) {
        Policy policy = zone.zone.policy;
        apply(override, policy);
        add(policy);
        records.push_back(block_key_of(zone, key, policy));
    };
    Policy own = zone.zone.policy;
    if (const auto wrong = read_policy(arguments, own); !wrong.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, wrong);
    }
    if (own.rate != zone.zone.policy.rate) {  // rate= is given: perhaps of an earlier override
        const bool burst = api_argument(arguments, "burst").given;
        add_override({ Override::Kind::rate, own.rate, burst ? own.burst : std::nullopt });
    }
    if (const auto override = changed_policy(zone, key)) {
        add_override(*override);
    }
    use_last_rate(zone, key, own);
    if (own.rate.quota != 0 || keeps_arrival_time(own.algorithm)) {
        add(own);
    } else if (records.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, no_rate);
    }
    if (!no_period.empty()) {
        return send_error(r, NGX_HTTP_BAD_REQUEST, no_period);
    }
    records.push_back(block_key_of(zone, key, own));
    return ask<KeyDeletion>(r, zone, key, std::move(records));
}

}  // namespace ratelimit::http
