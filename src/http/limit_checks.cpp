#include "http/limit_checks.h"

#include "http/counted_key.h"
#include "limit/rate_text.h"
#include "nginx/clock.h"
#include "nginx/text.h"

namespace ratelimit::http {

namespace {

using nginx::borrowed;
using nginx::view;

/// A variable that is malformed is so for request after request: one line in ten seconds.
bool may_complain(time_t& last) noexcept
{
    constexpr time_t pause_s = 10;
    if (last != 0 && ngx_time() - last < pause_s) {
        return false;
    }
    last = ngx_time();
    return true;
}

void complain(
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
    if (!zone.variable_rate) {
        return Read::ok;
    }
    ngx_str_t text;
    if (ngx_http_complex_value(r, &zone.rate, &text) != NGX_OK) {
        return Read::failed;
    }
    if (text.len == 0) {
        return Read::unlimited;
    }
    const auto parsed = parse_rate(view(text));
    const bool log = zone.zone.policy.algorithm == Algorithm::sliding_window_log;
    if (!parsed || (log && parsed->quota > max_logged_quota)) {
        if (may_complain(zone.rate_complaint)) {
            complain(r, zone, "rate", text);
        }
        return Read::malformed;
    }
    rate = *parsed;
    return Read::ok;
}

Read read_cost(ngx_http_request_t* r, const LimitConf& limit, std::int64_t& cost)
{
    cost = limit.cost;
    if (!limit.variable_cost) {
        return Read::ok;
    }
    ngx_str_t text;
    // nginx's function takes no const, and changes nothing.
    auto* value = const_cast<ngx_http_complex_value_t*>(&limit.cost_value);
    if (ngx_http_complex_value(r, value, &text) != NGX_OK) {
        return Read::failed;
    }
    const auto parsed = parse_number(view(text), 0, max_cost);
    if (!parsed && text.len != 0 && may_complain(limit.zone->cost_complaint)) {
        complain(r, *limit.zone, "cost", text);
    }
    cost = parsed.value_or(1);
    return Read::ok;
}

/// Empty: not limited.
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
    const ngx_str_t shown = borrowed(nginx::escaped_for_log(key, text, sizeof(text)));
    ngx_log_debug3(
        NGX_LOG_DEBUG_HTTP, r->connection->log, 0, "ratelimit zone \"%V\": key \"%V\", cost %L",
        &name, &shown, cost);
}

#else

void debug_limit(ngx_http_request_t*, const ZoneConf&, std::string_view, std::int64_t) noexcept {}

#endif

/// What takes nothing needs no turn to wait for.
std::optional<std::int64_t> undelayed_of(const LimitConf& limit, std::int64_t cost) noexcept
{
    if (limit.nodelay || cost == 0) {
        return std::nullopt;
    }
    return limit.delay.value_or(0);
}

/// What is asked of Redis about a limit that has been read.
Read make_remote(
    ngx_http_request_t* r, const LimitConf& limit, std::string_view key, DecidedLimit& decided,
    RemoteCheck& check)
{
    const Zone& zone = limit.zone->zone;
    auto* memory = static_cast<char*>(ngx_pnalloc(r->pool, zone.redis_key_length(key)));
    if (memory == nullptr) {
        return Read::failed;
    }
    check.key = zone.redis_key(key, zone.record_of(decided.policy), memory);
    check.policy = decided.policy;
    check.shadow = limit.shadow;
    check.coalescer = &limit.zone->redis->coalescer();
    check.scripts = limit.scripts;
    check.state = &decided.state;
    if (zone.clock == Clock::local) {
        check.now = nginx::local_time();
    }
    return Read::ok;
}

/// Reads one limit into place `index` of the state, and appends what is to be asked about it.
Read make_check(
    ngx_http_request_t* r, const LimitConf& limit, RequestState& state, std::size_t index,
    std::size_t& remotes)
{
    ZoneConf& zone = *limit.zone;
    Policy policy = zone.zone.policy;
    std::string_view key;
    std::int64_t cost = 1;

    Read read = read_key(r, zone, key);
    if (read == Read::ok) {
        read = read_rate(r, zone, policy.rate);
    }
    if (read == Read::ok) {
        read = read_cost(r, limit, cost);
    }
    if (read != Read::ok) {
        return read;
    }
    if (limit.burst) {
        policy.burst = limit.burst;
    }
    state.limits[index] = { &zone, key, cost, zone.zone.policy_hash(policy) };
    debug_limit(r, zone, key, cost);
    state.decided[index] = { policy, {}, undelayed_of(limit, cost), limit.shadow, Source::redis };
    if (zone.redis == nullptr) {
        return Read::ok;
    }
    RemoteCheck& check = state.checks[remotes++];
    check.cost = cost;
    check.limit = index;
    return make_remote(r, limit, key, state.decided[index], check);
}

}  // namespace

Checks make_checks(ngx_http_request_t* r, const LimitSet& set, RequestState*& state)
{
    state = RequestState::make(r, set.limits.size());
    if (state == nullptr) {
        return Checks::failed;
    }
    std::size_t count = 0;
    std::size_t remotes = 0;
    for (const LimitConf& limit : set.limits) {
        switch (make_check(r, limit, *state, count, remotes)) {
        case Read::ok:
            ++count;
            break;
        case Read::unlimited:
            break;
        case Read::malformed:
            if (!limit.shadow) {
                state->note_undecided(*limit.zone);
            }
            break;
        case Read::failed:
            return Checks::failed;
        }
    }
    state->limits = state->limits.first(count);
    state->checks = state->checks.first(remotes);
    state->decided = state->decided.first(count);

    if (count == 0 && !state->undecided) {
        state->stage = RequestState::Stage::unlimited;
        return Checks::nothing_limited;
    }
    return Checks::ready;
}

}  // namespace ratelimit::http
