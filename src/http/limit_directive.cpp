#include "http/limit_directive.h"

#include "check/script_text.h"
#include "http/conf.h"
#include "http/conf_error.h"
#include "limit/rate_text.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ratelimit::http {

namespace {

using nginx::borrowed;
using nginx::view;

constexpr std::string_view directive = "ratelimit";

char* failed() noexcept
{
    return static_cast<char*>(NGX_CONF_ERROR);
}

/// nginx's variables that count bytes of a request or a response.
constexpr std::array byte_counts = {
    std::string_view("$content_length"),
    std::string_view("$request_length"),
    std::string_view("$bytes_sent"),
    std::string_view("$body_bytes_sent"),
    std::string_view("$upstream_response_length"),
    std::string_view("$upstream_bytes_received"),
};

/// Other costs have no unit that the draft of the RateLimit headers names.
bool counts_bytes(std::string_view cost) noexcept
{
    return std::find(byte_counts.begin(), byte_counts.end(), cost) != byte_counts.end();
}

char* compile(ngx_conf_t* cf, std::string_view value, ngx_http_complex_value_t& out)
{
    ngx_str_t text = borrowed(value);
    ngx_http_compile_complex_value_t compile{};
    compile.cf = cf;
    compile.value = &text;
    compile.complex_value = &out;
    return ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : failed();
}

char* set_cost(ngx_conf_t* cf, LimitConf& limit, std::string_view parameter, std::string_view value)
{
    if (value.find('$') == std::string_view::npos) {
        const auto cost = parse_number(value, 0, max_cost);
        if (!cost) {
            return bad_value(
                cf, directive, parameter, "a number from 0 to 1000000000 or a variable");
        }
        limit.cost = *cost;
        return NGX_CONF_OK;
    }
    limit.variable_cost = true;
    return compile(cf, value, limit.cost_value);
}

char* set_charge(
    ngx_conf_t* cf, LimitConf& limit, std::string_view parameter, std::string_view value)
{
    if (value.find('$') == std::string_view::npos) {
        return bad_value(cf, directive, parameter, "charge= with a variable");
    }
    limit.charges = true;
    return compile(cf, value, limit.charge);
}

char* set_count(
    ngx_conf_t* cf, std::optional<std::int64_t>& out, std::string_view parameter,
    std::string_view value)
{
    out = parse_number(value, 0, max_quota);
    return out ? NGX_CONF_OK
               : bad_value(cf, directive, parameter, "a number of requests from 0 to 1000000000");
}

char* read_parameter(ngx_conf_t* cf, LimitConf& limit, std::string_view parameter)
{
    const auto equals = parameter.find('=');
    const auto name = parameter.substr(0, equals == parameter.npos ? equals : equals + 1);
    const auto value = parameter.substr(name.size());
    if (counts_bytes(value)) {  // only costs take variables
        limit.unit = QuotaUnit::content_bytes;
    }

    if (name == "zone=" && !value.empty()) {
        limit.zone_name = value;
        return NGX_CONF_OK;
    }
    if (name == "burst=") {
        return set_count(cf, limit.burst, parameter, value);
    }
    if (name == "delay=") {
        return set_count(cf, limit.delay, parameter, value);
    }
    if (name == "cost=") {
        return set_cost(cf, limit, parameter, value);
    }
    if (name == "charge=") {
        return set_charge(cf, limit, parameter, value);
    }
    if (name == "nodelay" || name == "shadow") {
        (name == "nodelay" ? limit.nodelay : limit.shadow) = true;
        return NGX_CONF_OK;
    }
    return bad_value(
        cf, directive, parameter,
        "zone=name, burst=number, nodelay, delay=number, cost=number, charge=variable, shadow, or "
        "off alone");
}

char* read_limit(ngx_conf_t* cf, LimitConf& limit)
{
    const auto* values = static_cast<const ngx_str_t*>(cf->args->elts);
    limit.position = position_of(cf);

    for (ngx_uint_t i = 1; i < cf->args->nelts; ++i) {
        for (ngx_uint_t before = 1; before < i; ++before) {
            const auto name = view(values[before]).substr(0, view(values[before]).find('='));
            if (name == view(values[i]).substr(0, view(values[i]).find('='))) {
                return bad_value(cf, directive, view(values[i]), "each parameter once");
            }
        }
        char* result = read_parameter(cf, limit, view(values[i]));
        if (result != NGX_CONF_OK) {
            return result;
        }
    }
    if (limit.zone_name.empty()) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0, "\"ratelimit\" must have a \"zone=\" parameter or be \"off\"");
        return failed();
    }
    if (limit.nodelay && limit.delay) {
        return bad_value(cf, directive, "nodelay", "either nodelay or delay=");
    }
    return NGX_CONF_OK;
}

char* read_limits(ngx_conf_t* cf, LocationConf& location)
{
    const auto* values = static_cast<const ngx_str_t*>(cf->args->elts);
    const bool off = cf->args->nelts == 2 && view(values[1]) == "off";

    if (location.limits == NGX_CONF_UNSET_PTR) {
        location.limits = nginx::make<LimitSet>(cf->pool);
        if (location.limits == nullptr) {
            return failed();
        }
    } else if (off || location.limits->limits.empty()) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "\"ratelimit off\" excludes other \"ratelimit\" directives at the same level");
        return failed();
    }
    if (off) {
        return NGX_CONF_OK;
    }

    LimitConf limit;
    char* result = read_limit(cf, limit);
    if (result != NGX_CONF_OK) {
        return result;
    }
    for (const LimitConf& other : location.limits->limits) {
        if (other.zone_name == limit.zone_name) {
            const ngx_str_t name = borrowed(limit.zone_name);
            ngx_conf_log_error(
                NGX_LOG_EMERG, cf, 0, "duplicate \"ratelimit\" of zone \"%V\"", &name);
            return failed();
        }
    }
    location.limits->limits.push_back(std::move(limit));
    return NGX_CONF_OK;
}

char* limit_error(ngx_conf_t* cf, const LimitConf& limit, std::string_view error)
{
    const ngx_str_t name = borrowed(limit.zone_name);
    const ngx_str_t text = borrowed(error);
    ngx_log_error(
        NGX_LOG_EMERG, cf->log, 0, "\"ratelimit zone=%V\": %V in %V:%ui", &name, &text,
        &limit.position.file, limit.position.line);
    return failed();
}

/// Checks a limit's parameters against its zone's algorithm.
char* check_limit(ngx_conf_t* cf, const LimitConf& limit)
{
    const Algorithm algorithm = limit.zone->zone.policy.algorithm;

    const auto invalid_burst = [&](const char* expected) {
        const auto burst = std::to_string(*limit.burst);
        return limit_error(cf, limit, "invalid \"burst=" + burst + "\", expected " + expected);
    };
    if (limit.burst && !keeps_arrival_time(algorithm)) {
        return invalid_burst("no burst, which only token_bucket, leaky_bucket and gcra have");
    }
    if (limit.burst && burst_is_too_small(algorithm, *limit.burst)) {
        return invalid_burst("a bucket that holds at least one request");
    }
    if (limit.charges && counts_at_one_time(algorithm)) {
        return limit_error(
            cf, limit, "invalid \"charge=\", expected no charge, which concurrency= does not have");
    }
    Policy policy = limit.zone->zone.policy;
    policy.burst = limit.burst;
    if (limit.burst && !limit.zone->variable_rate && !policy.burst_fits()) {
        return invalid_burst("a burst that refills at this rate within 142 years");
    }
    if ((limit.nodelay || limit.delay) && !traits_of(algorithm).delays) {
        const auto delay = limit.delay ? "delay=" + std::to_string(*limit.delay) : "nodelay";
        return limit_error(
            cf, limit, "invalid \"" + delay + "\", expected no delay, which only leaky_bucket has");
    }
    return NGX_CONF_OK;
}

/// For zones where more than the passing of time can free a key: a remembered refusal holds for at
/// most a second.
void remember_briefly(ZoneConf& zone) noexcept
{
    zone.zone.remembered = std::min<microseconds>(zone.zone.remembered, std::chrono::seconds{ 1 });
}

bool holds(const LimitConf& limit) noexcept
{
    return counts_at_one_time(limit.zone->zone.policy.algorithm);
}

bool blocks(const LimitConf& limit) noexcept
{
    return limit.zone->zone.policy.block.count() > 0;
}

/// Registers the scripts of sequences, for each Redis: for its first limits in the location, as
/// many as a sequence may have, for the next ones, and so on.
void add_sequences(LimitSet& set, bool refundable)
{
    for (const LimitConf& first : set.limits) {
        RedisBlock* const redis = first.zone->redis;
        if (redis == nullptr || first.scripts.sequences != nullptr) {
            continue;
        }
        std::vector<LimitConf*> group;
        std::vector<SequenceLimit> sequence;
        for (LimitConf& limit : set.limits) {
            if (limit.zone->redis == redis && limit.scripts.sequences == nullptr
                && group.size() < SequenceScripts::most) {
                group.push_back(&limit);
                const Policy& policy = limit.zone->zone.policy;
                sequence.push_back({ policy.algorithm, limit.shadow, blocks(limit) });
            }
        }
        const auto& scripts = set.sequences.emplace_back(sequence, refundable, redis->scripts);
        for (std::size_t i = 0; i < group.size(); ++i) {
            group[i]->scripts.sequences = &scripts;
            group[i]->scripts.bit = SequenceScripts::bit(i);
        }
    }
}

/// Registers the script that decides several limits of the location, or several requests with the
/// same keys, in one call, and where needed the script that refunds.
void add_scripts(LimitConf& limit, std::span<const Algorithm> algorithms, bool may_span_shards)
{
    redis::ScriptRegistry& scripts = limit.zone->redis->scripts;
    limit.scripts.several = scripts.add(several_script(algorithms));
    if (limit.charges) {
        limit.scripts.charge = scripts.add(charge_script(limit.zone->zone.policy.algorithm));
    }
    if (blocks(limit)) {
        limit.scripts.block = scripts.add(block_script());
    }
    if (holds(limit)) {
        limit.scripts.statement = scripts.add(statement_script());
        return;
    }
    limit.scripts.refund = scripts.add(refund_script());
    const bool spans_servers = algorithms.size() > 1 && may_span_shards;
    limit.zone->zone.spans_servers = limit.zone->zone.spans_servers || spans_servers;
    if (limit.charges || spans_servers) {
        remember_briefly(*limit.zone);  // a refund can free a key
    }
}

}  // namespace

char* resolve(ngx_conf_t* cf, MainConf& main, LimitSet& set)
{
    if (set.resolved || set.limits.empty()) {
        return NGX_CONF_OK;
    }
    std::vector<Algorithm> algorithms;

    for (LimitConf& limit : set.limits) {
        limit.zone = main.zone_named(limit.zone_name);
        if (limit.zone == nullptr) {
            return limit_error(
                cf, limit, "unknown zone, expected the name of a \"ratelimit_zone\"");
        }
        if (char* result = check_limit(cf, limit); result != NGX_CONF_OK) {
            return result;
        }
        algorithms.push_back(limit.zone->zone.policy.algorithm);
        if (holds(limit)) {
            limit.unit = QuotaUnit::concurrent_requests;
        }
    }
    const RedisBlock* const first = set.limits.front().zone->redis;
    const bool may_span_shards =
        std::any_of(set.limits.begin(), set.limits.end(), [first](const auto& limit) {
            const RedisBlock* redis = limit.zone->redis;
            return redis != first || (redis != nullptr && redis->may_span_shards());
        });
    set.charges = std::any_of(
        set.limits.begin(), set.limits.end(), [](const LimitConf& limit) { return limit.charges; });
    add_sequences(set, true);
    for (LimitConf& limit : set.limits) {
        if (limit.zone->redis == nullptr) {
            continue;
        }
        add_scripts(limit, algorithms, may_span_shards);
        // On any node, a request under another policy can reduce what is stored of the key, and a
        // request of a smaller cost can pass while one of a larger cost is refused.
        if (limit.zone->variable_rate || limit.variable_cost
            || (limit.burst && limit.burst != limit.zone->zone.policy.burst)
            || (limit.cost > 0 && limit.zone->cost.value_or(limit.cost) != limit.cost)) {
            remember_briefly(*limit.zone);
        }
        if (limit.cost > 0) {
            limit.zone->cost = limit.cost;
        }
    }
    set.resolved = true;
    return NGX_CONF_OK;
}

char* limit_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf, conf] {
        return read_limits(cf, *static_cast<LocationConf*>(conf));
    });
}

}  // namespace ratelimit::http
