#include "http/evaluate_limits.h"

#include "http/counted_key.h"
#include "http/shown_key.h"
#include "limit/calendar.h"
#include "limit/rate_text.h"
#include "nginx/pool.h"
#include "nginx/text.h"
#include "node/clocks.h"

namespace ratelimit::http {

namespace {

using nginx::borrowed;
using nginx::view;

/// A malformed variable is usually malformed in every request: one line in ten seconds is logged
/// for each zone and worker.
bool may_log_malformed(time_t& last) noexcept
{
    constexpr time_t pause_s = 10;
    if (last != 0 && ngx_time() - last < pause_s) {
        return false;
    }
    last = ngx_time();
    return true;
}

void log_malformed(
    ngx_http_request_t* r, const ZoneConf& zone, const char* what, const ngx_str_t& value) noexcept
{
    char text[128];
    const ngx_str_t name = borrowed(zone.zone.name);
    const ngx_str_t shown = borrowed(nginx::escaped_for_log(view(value), text, sizeof(text)));
    ngx_log_error(
        NGX_LOG_ERR, r->connection->log, 0, "ratelimit: invalid %s \"%V\" for zone \"%V\"", what,
        &shown, &name);
}

enum class Read : std::uint8_t { ok, unlimited, malformed, failed };

Read read_rate(ngx_http_request_t* r, ZoneConf& zone, Rate& rate)
{
    if (!zone.variable_rate()) {
        return Read::ok;
    }
    ngx_str_t text;
    if (ngx_http_complex_value(r, &zone.rate, &text) != NGX_OK) {
        return Read::failed;
    }
    if (text.len == 0) {
        return Read::unlimited;
    }
    const bool calendar = zone.calendar != nullptr;
    const auto parsed = calendar ? parse_calendar_rate(view(text)) : parse_rate(view(text));
    const bool log = traits_of(zone.zone.policy.algorithm).logs;
    if (!parsed || (log && parsed->quota > max_logged_quota)) {
        if (may_log_malformed(zone.bad_rate_logged)) {
            log_malformed(r, zone, "rate", text);
        }
        return Read::malformed;
    }
    rate = *parsed;
    return Read::ok;
}

/// Evaluates a cost or a charge. `number` has no value if the variable is empty, or malformed,
/// which is logged.
Read read_number(
    ngx_http_request_t* r, const ngx_http_complex_value_t& value, const ZoneConf& zone,
    const char* what, time_t& logged, std::optional<std::int64_t>& number)
{
    ngx_str_t text;
    // ngx_http_complex_value takes a non-const pointer, but changes nothing.
    if (ngx_http_complex_value(r, const_cast<ngx_http_complex_value_t*>(&value), &text) != NGX_OK) {
        return Read::failed;
    }
    number = parse_number(view(text), 0, max_cost);
    if (!number && text.len != 0 && may_log_malformed(logged)) {
        log_malformed(r, zone, what, text);
    }
    return Read::ok;
}

Read read_cost(ngx_http_request_t* r, const LimitConf& limit, std::int64_t& cost)
{
    cost = limit.cost;
    if (!limit.variable_cost()) {
        return Read::ok;
    }
    std::optional<std::int64_t> number;
    const Read read =
        read_number(r, limit.cost_value, *limit.zone, "cost", limit.zone->bad_cost_logged, number);
    cost = number.value_or(1);
    return read;
}

/// Reads what must remain after the request: a variable that is empty or malformed reserves
/// nothing.
Read read_reserve(ngx_http_request_t* r, const LimitConf& limit, Policy& policy)
{
    Reserve reserve = limit.reserve;
    if (!limit.reserve_text.empty()) {
        ngx_str_t text;
        auto* value = const_cast<ngx_http_complex_value_t*>(&limit.reserve_value);  // as above
        if (ngx_http_complex_value(r, value, &text) != NGX_OK) {
            return Read::failed;
        }
        const auto parsed = parse_reserve(view(text));
        if (!parsed && text.len != 0 && may_log_malformed(limit.zone->bad_reserve_logged)) {
            log_malformed(r, *limit.zone, "reserve", text);
        }
        reserve = parsed.value_or(Reserve{});
    }
    policy.reserve = reserve.of(policy.whole());
    return Read::ok;
}

/// Finds the calendar period in which the request counts. A start that is empty or malformed is the
/// first day of the month.
Read read_period(ngx_http_request_t* r, ZoneConf& zone, Policy& policy)
{
    if (!zone.start_text.empty() && policy.rate.period == Period::month) {
        ngx_str_t text;
        if (ngx_http_complex_value(r, &zone.start, &text) != NGX_OK) {
            return Read::failed;
        }
        const auto day = parse_start_day(view(text));
        if (!day && text.len != 0 && may_log_malformed(zone.bad_start_logged)) {
            log_malformed(r, zone, "start", text);
        }
        policy.start_day = day.value_or(1);
    }
    enter_period(policy, node_clock.since_epoch());
    return Read::ok;
}

/// Reads the key as it is counted. An empty key is not limited.
Read read_key(ngx_http_request_t* r, ZoneConf& zone, std::string_view& key)
{
    ngx_str_t text;
    if (ngx_http_complex_value(r, &zone.key, &text) != NGX_OK) {
        return Read::failed;
    }
    if (text.len == 0) {
        return Read::unlimited;
    }
    key = counted_key(r->pool, zone, view(text));
    return key.data() == nullptr ? Read::failed : Read::ok;
}

#if (NGX_DEBUG)

void debug_limit(
    ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, std::int64_t cost) noexcept
{
    if ((r->connection->log->log_level & NGX_LOG_DEBUG_HTTP) == 0) {
        return;
    }
    char text[128];
    const ngx_str_t name = borrowed(zone.zone.name);
    const ngx_str_t shown = borrowed(shown_key(zone.zone, key, text, sizeof(text)));
    ngx_log_debug3(
        NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "ratelimit zone \"%V\": key \"%V\", cost %L",
        &name, &shown, cost);
}

#else

void debug_limit(ngx_http_request_t*, const ZoneConf&, std::string_view, std::int64_t) noexcept {}

#endif

/// A request that takes nothing (cost 0) is not delayed.
std::optional<std::int64_t> undelayed_of(const LimitConf& limit, std::int64_t cost) noexcept
{
    if (limit.nodelay || cost == 0) {
        return std::nullopt;
    }
    return limit.delay.value_or(0);
}

/// Sets where in Redis the limit is counted, and by which scripts.
Read find_in_redis(ngx_http_request_t* r, const LimitConf& conf, AppliedLimit& limit)
{
    const Zone& zone = *limit.zone;
    const bool blocks = limit.policy.block.count() > 0;
    const std::size_t room = zone.redis_key_length(limit.key);
    auto* memory = static_cast<char*>(ngx_pnalloc(r->pool, blocks ? 2 * room : room));
    if (memory == nullptr) {
        return Read::failed;
    }
    limit.redis_key = zone.redis_key(limit.key, zone.record_of(limit.policy), memory);
    if (blocks) {
        limit.block_key = zone.block_key(limit.key, limit.policy.override_record, memory + room);
    }
    limit.coalescer = &conf.zone->redis->coalescer();
    limit.owner = &zone;
    limit.scripts = conf.scripts;
    if (limit.holds != nullptr && limit.cost > 0) {
        limit.holdings = &conf.zone->holdings();
    }
    if (zone.lease > 0) {
        limit.renewals = &conf.zone->redis->lease_renewals();
    }
    if (zone.ahead > 0) {
        limit.ahead = &conf.zone->redis->ahead_units();
    }
    return Read::ok;
}

/// Reads rate and burst, or takes them from the override of the key or the zone.
Read read_policy(ngx_http_request_t* r, const LimitConf& conf, AppliedLimit& limit)
{
    const Zone& zone = conf.zone->zone;
    const auto override = zone.override_of(limit.key);
    if (!override) {
        return read_rate(r, *conf.zone, limit.policy.rate);
    }
    if (override->kind == Override::Kind::unlimited) {
        return Read::unlimited;
    }
    limit.policy_hash = 0;
    if (override->kind == Override::Kind::block) {
        const auto rest = zone.rest_of(*override);
        limit.blocked_for = rest.value_or(endless_block);
        // The verdict is the same for every rate, so a malformed one does no harm.
        const Read read = read_rate(r, *conf.zone, limit.policy.rate);
        if (limit.policy.rate.quota == 0) {
            limit.policy.rate = { 1, std::chrono::seconds{ 1 } };
        }
        return read == Read::failed ? read : Read::ok;
    }
    apply(*override, limit.policy);
    limit.override_ends = zone.rest_of(*override);
    return Read::ok;
}

Read read_limit(ngx_http_request_t* r, const LimitConf& conf, AppliedLimit& limit)
{
    ZoneConf& zone = *conf.zone;
    limit.zone = &zone.zone;
    limit.policy = conf.policy;
    limit.policy_hash = conf.policy_hash;
    limit.shadow = conf.shadow;
    limit.settled_later = conf.charges();

    Read read = read_key(r, zone, limit.key);
    if (read == Read::ok) {
        read = read_policy(r, conf, limit);
    }
    if (read == Read::ok && limit.policy.calendar != nullptr) {
        read = read_period(r, zone, limit.policy);
    }
    if (read == Read::ok) {
        read = read_cost(r, conf, limit.cost);
    }
    if (read == Read::ok && conf.has_reserve()) {
        read = read_reserve(r, conf, limit.policy);
    }
    if (read != Read::ok) {
        return read;
    }
    if (counts_at_one_time(limit.policy.algorithm)) {
        limit.holds = &zone.holds();
    }
    if (limit.policy_hash == 0) {
        limit.policy_hash = zone.zone.policy_hash(limit.policy);
    }
    limit.undelayed = undelayed_of(conf, limit.cost);
    debug_limit(r, zone, limit.key, limit.cost);
    return zone.redis == nullptr ? Read::ok : find_in_redis(r, conf, limit);
}

}  // namespace

std::optional<std::span<AppliedLimit>> evaluate_limits(ngx_http_request_t* r, const LimitSet& set)
{
    const auto limits = nginx::make_array<AppliedLimit, true>(r->pool, set.limits.size());
    if (limits.data() == nullptr) {
        return std::nullopt;
    }
    std::size_t count = 0;
    for (const LimitConf& conf : set.limits) {
        AppliedLimit& limit = limits[count];
        limit.configured = static_cast<std::size_t>(&conf - set.limits.data());
        const Read read = read_limit(r, conf, limit);
        if (read == Read::failed) {
            return std::nullopt;
        }
        limit.malformed = read == Read::malformed;
        if (read == Read::unlimited || (limit.malformed && limit.shadow)) {
            limit = {};
        } else {
            ++count;
        }
    }
    return limits.first(count);
}

std::optional<std::int64_t> evaluate_charge(ngx_http_request_t* r, const LimitConf& limit)
{
    std::optional<std::int64_t> charge;
    read_number(r, limit.charge, *limit.zone, "charge", limit.zone->bad_charge_logged, charge);
    return charge;
}

}  // namespace ratelimit::http
