#include "http/limit_directive.h"

#include "check/script_text.h"
#include "http/conf.h"
#include "http/conf_error.h"
#include "limit/rate_text.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"

#include <algorithm>
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

char* set_cost(ngx_conf_t* cf, LimitConf& limit, std::string_view parameter, std::string_view value)
{
    if (value.find('$') == std::string_view::npos) {
        const auto cost = parse_number(value, 0, max_cost);
        if (!cost) {
            return bad_value(cf, directive, parameter, "cost= with a number or a variable");
        }
        limit.cost = *cost;
        return NGX_CONF_OK;
    }
    ngx_str_t text = borrowed(value);
    ngx_http_compile_complex_value_t compile{};
    compile.cf = cf;
    compile.value = &text;
    compile.complex_value = &limit.cost_value;
    limit.variable_cost = true;
    return ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : failed();
}

char* set_count(
    ngx_conf_t* cf, std::optional<std::int64_t>& out, std::string_view parameter,
    std::string_view value)
{
    out = parse_number(value, 0, max_quota);
    return out ? NGX_CONF_OK : bad_value(cf, directive, parameter, "a number of requests");
}

char* read_parameter(ngx_conf_t* cf, LimitConf& limit, std::string_view parameter)
{
    const auto equals = parameter.find('=');
    const auto name = parameter.substr(0, equals == parameter.npos ? equals : equals + 1);
    const auto value = parameter.substr(name.size());

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
    if (name == "nodelay" || name == "shadow") {
        (name == "nodelay" ? limit.nodelay : limit.shadow) = true;
        return NGX_CONF_OK;
    }
    return bad_value(
        cf, directive, parameter,
        "zone=name, burst=number, nodelay, delay=number, cost=number, shadow, or off alone");
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
            NGX_LOG_EMERG, cf, 0, "\"ratelimit off\" stands beside other \"ratelimit\" directives");
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

char* complain(ngx_conf_t* cf, const LimitConf& limit, const char* what)
{
    const ngx_str_t name = borrowed(limit.zone_name);
    ngx_log_error(
        NGX_LOG_EMERG, cf->log, 0, "\"ratelimit zone=%V\": %s in %V:%ui", &name, what,
        &limit.position.file, limit.position.line);
    return failed();
}

/// What a limit asks for against what its zone's algorithm has.
char* check_limit(ngx_conf_t* cf, const LimitConf& limit)
{
    const Algorithm algorithm = limit.zone->zone.policy.algorithm;

    if (limit.burst && !keeps_arrival_time(algorithm)) {
        return complain(
            cf, limit, "invalid \"burst\", only token_bucket, leaky_bucket and gcra have one");
    }
    if (limit.burst == 0 && algorithm == Algorithm::token_bucket) {
        return complain(
            cf, limit, "invalid \"burst=0\", expected a bucket that holds at least one request");
    }
    Policy policy = limit.zone->zone.policy;
    policy.burst = limit.burst;
    if (limit.burst && !limit.zone->variable_rate && !policy.burst_fits()) {
        return complain(
            cf, limit,
            "invalid \"burst\", expected one that the rate makes up for within 142 years");
    }
    if ((limit.nodelay || limit.delay) && algorithm != Algorithm::leaky_bucket) {
        return complain(
            cf, limit, "invalid \"nodelay\" or \"delay\", only leaky_bucket delays requests");
    }
    return NGX_CONF_OK;
}

/// How long a refusal is remembered, at most, where not only time changes what a key has left.
void remember_briefly(ZoneConf& zone) noexcept
{
    zone.zone.remembered = std::min<microseconds>(zone.zone.remembered, std::chrono::seconds{ 1 });
}

/// The scripts that can check a limit: alone, or with others of its location (some of them, where
/// keys may span shards) and with other requests of the same keys.
void add_scripts(LimitConf& limit, std::span<const Algorithm> algorithms, bool may_span_shards)
{
    redis::ScriptRegistry& scripts = limit.zone->redis->scripts;
    limit.scripts.single = scripts.add(single_script(limit.zone->zone.policy.algorithm));
    limit.scripts.several = scripts.add(several_script(algorithms));
    if (algorithms.size() > 1 && may_span_shards) {
        limit.scripts.refund = scripts.add(refund_script());
        remember_briefly(*limit.zone);  // after a refund a request may pass that was refused
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
            return complain(
                cf, limit, "unknown zone, expected one that a \"ratelimit_zone\" names");
        }
        if (char* result = check_limit(cf, limit); result != NGX_CONF_OK) {
            return result;
        }
        algorithms.push_back(limit.zone->zone.policy.algorithm);
    }
    const RedisBlock* const first = set.limits.front().zone->redis;
    const bool may_span_shards =
        std::any_of(set.limits.begin(), set.limits.end(), [first](const auto& limit) {
            const RedisBlock* redis = limit.zone->redis;
            return redis != first || (redis != nullptr && redis->may_span_shards());
        });
    for (LimitConf& limit : set.limits) {
        if (limit.zone->redis == nullptr) {
            continue;
        }
        add_scripts(limit, algorithms, may_span_shards);
        // A request under another policy may leave less of what a key holds under this one, and a
        // request of a smaller cost may pass while a larger one is refused, on any node.
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
