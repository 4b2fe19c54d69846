#include "http/zone_directive.h"

#include "http/conf.h"
#include "http/conf_error.h"
#include "http/zone_tag.h"
#include "limit/fail_mode.h"
#include "limit/rate_text.h"
#include "nginx/guarded.h"
#include "store/zone_memory.h"

#include <algorithm>
#include <span>

namespace ratelimit::http {

namespace {

using nginx::borrowed;
using nginx::view;

constexpr std::string_view directive = "ratelimit_zone";
constexpr std::int64_t max_lease = 1'000'000;
constexpr std::chrono::seconds default_hold{ 60 };
constexpr std::chrono::hours longest_hold{ 24 };
constexpr ssize_t default_size = ssize_t{ 1024 } * 1024;

/// A zone while its directive is read.
struct ZoneReader {
    ngx_conf_t* cf;
    ZoneConf& conf;
    ssize_t size = default_size;
    std::string_view parameter;        // the current one, with its value
    std::optional<microseconds> hold;  // empty: the default

    char* expected(std::string_view what) const noexcept
    {
        return bad_value(cf, directive, parameter, what);
    }
};

struct Parameter {
    std::string_view name;  // with its equals sign, unless it has no value
    char* (*set)(ZoneReader& reader, std::string_view value);
};

char* failed() noexcept
{
    return static_cast<char*>(NGX_CONF_ERROR);
}

char* set_zone(ZoneReader& reader, std::string_view value)
{
    const auto colon = value.find(':');
    const auto name = value.substr(0, colon);
    if (!good_name(name)) {
        return reader.expected("zone=name or zone=name:size, the name of letters, digits, _ . or "
                               "-, not starting with a dot");
    }
    if (colon != std::string_view::npos) {
        ngx_str_t size = borrowed(value.substr(colon + 1));
        reader.size = ngx_parse_size(&size);
        if (reader.size == NGX_ERROR) {
            return reader.expected("a size such as 512k or 10m");
        }
        if (reader.size < static_cast<ssize_t>(8 * ngx_pagesize)) {
            return reader.expected("a size of at least eight memory pages (32k)");
        }
    }
    reader.conf.zone.name = name;
    return NGX_CONF_OK;
}

char* set_rate(ZoneReader& reader, std::string_view value)
{
    reader.conf.rate_text = value;
    if (value.find('$') != std::string_view::npos) {
        ngx_str_t text = borrowed(value);
        ngx_http_compile_complex_value_t compile{};
        compile.cf = reader.cf;
        compile.value = &text;
        compile.complex_value = &reader.conf.rate;
        reader.conf.variable_rate = true;
        return ngx_http_compile_complex_value(&compile) == NGX_OK ? NGX_CONF_OK : failed();
    }
    const auto rate = parse_rate(value);
    if (!rate) {
        return reader.expected(expected_rate(value));
    }
    reader.conf.zone.policy.rate = *rate;
    return NGX_CONF_OK;
}

char* set_algorithm(ZoneReader& reader, std::string_view value)
{
    const auto algorithm = algorithm_named(value);
    if (!algorithm) {
        return reader.expected(
            "fixed_window, sliding_window_counter, sliding_window_log, sliding_window_buckets, "
            "token_bucket, leaky_bucket or gcra");
    }
    reader.conf.zone.policy.algorithm = *algorithm;
    return NGX_CONF_OK;
}

char* set_burst(ZoneReader& reader, std::string_view value)
{
    const auto burst = parse_number(value, 0, max_quota);
    if (!burst) {
        return reader.expected("a number of requests from 0 to 1000000000");
    }
    reader.conf.zone.policy.burst = *burst;
    return NGX_CONF_OK;
}

char* set_precision(ZoneReader& reader, std::string_view value)
{
    const auto precision = parse_seconds(value);
    if (!precision) {
        return reader.expected("a time from 1s to 366d, such as 10s or 1m");
    }
    reader.conf.zone.policy.precision = *precision;
    return NGX_CONF_OK;
}

char* set_concurrency(ZoneReader& reader, std::string_view value)
{
    const auto most = parse_number(value, 1, max_quota);
    if (!most) {
        return reader.expected("a number of requests at one time from 1 to 1000000000");
    }
    Policy& policy = reader.conf.zone.policy;
    policy.algorithm = Algorithm::concurrency;
    policy.rate.quota = *most;
    reader.conf.zone.cache = false;  // a request may end at any time
    return NGX_CONF_OK;
}

char* set_hold(ZoneReader& reader, std::string_view value)
{
    reader.hold = parse_seconds(value);
    return reader.hold && *reader.hold <= longest_hold ? NGX_CONF_OK
                                                       : reader.expected("a time from 1s to 1d");
}

char* set_redis(ZoneReader& reader, std::string_view value)
{
    reader.conf.redis_name = value;
    return NGX_CONF_OK;
}

char* set_clock(ZoneReader& reader, std::string_view value)
{
    if (value != "redis" && value != "local") {
        return reader.expected("clock=redis or clock=local");
    }
    reader.conf.zone.clock = value == "redis" ? Clock::redis : Clock::local;
    return NGX_CONF_OK;
}

char* set_nodes(ZoneReader& reader, std::string_view value)
{
    const auto nodes =
        value == "auto" ? std::optional<std::int64_t>{ 0 } : parse_number(value, 1, max_nodes);
    if (!nodes) {
        return reader.expected("a number of nodes from 1 to 10000, or nodes=auto");
    }
    reader.conf.zone.nodes = *nodes;
    if (*nodes != 1) {
        reader.conf.redis_parameter = reader.parameter;
    }
    return NGX_CONF_OK;
}

char* set_cache(ZoneReader& reader, std::string_view value)
{
    if (value != "on" && value != "off") {
        return reader.expected("cache=on or cache=off");
    }
    reader.conf.zone.cache = value == "on";
    reader.conf.redis_parameter = reader.parameter;
    return NGX_CONF_OK;
}

char* set_lease(ZoneReader& reader, std::string_view value)
{
    const auto lease =
        value == "off" ? std::optional<std::int64_t>{ 0 } : parse_number(value, 1, max_lease);
    if (!lease) {
        return reader.expected("a number of requests from 1 to 1000000, or lease=off");
    }
    reader.conf.zone.lease = *lease;
    reader.conf.redis_parameter = reader.parameter;
    return NGX_CONF_OK;
}

char* set_block(ZoneReader& reader, std::string_view value)
{
    const auto block = parse_seconds(value);
    if (!block) {
        return reader.expected("a time from 1s to 366d, such as 10m or 1h");
    }
    reader.conf.zone.policy.block = *block;
    return NGX_CONF_OK;
}

char* set_hash_key(ZoneReader& reader, std::string_view value)
{
    if (!value.empty()) {
        return reader.expected("hash_key alone, without a value");
    }
    reader.conf.hash_key = true;
    return NGX_CONF_OK;
}

constexpr Parameter parameters[] = {
    { "zone=", set_zone },   { "rate=", set_rate },           { "algorithm=", set_algorithm },
    { "burst=", set_burst }, { "precision=", set_precision }, { "redis=", set_redis },
    { "clock=", set_clock }, { "nodes=", set_nodes },         { "cache=", set_cache },
    { "lease=", set_lease }, { "hash_key", set_hash_key },    { "concurrency=", set_concurrency },
    { "hold=", set_hold },   { "block=", set_block },
};

char* read_parameters(ZoneReader& reader)
{
    const auto* values = static_cast<const ngx_str_t*>(reader.cf->args->elts);
    bool seen[std::size(parameters)] = {};

    for (ngx_uint_t i = 2; i < reader.cf->args->nelts; ++i) {
        reader.parameter = view(values[i]);
        const auto* const found =
            std::find_if(std::begin(parameters), std::end(parameters), [&](const Parameter& known) {
                return reader.parameter.starts_with(known.name);
            });
        if (found == std::end(parameters)) {
            return reader.expected(
                "zone=, rate=, algorithm=, burst=, precision=, redis=, clock=, nodes=, cache=, "
                "lease=, block=, hash_key, concurrency= or hold=");
        }
        if (std::exchange(seen[found - std::begin(parameters)], true)) {
            return reader.expected("each parameter once");
        }
        char* result = found->set(reader, reader.parameter.substr(found->name.size()));
        if (result != NGX_CONF_OK) {
            return result;
        }
    }
    return NGX_CONF_OK;
}

/// The parameter that begins with this name, with its value. Empty: there is none.
std::string_view given(const ZoneReader& reader, std::string_view name) noexcept
{
    const auto values =
        std::span(static_cast<const ngx_str_t*>(reader.cf->args->elts), reader.cf->args->nelts);
    for (const ngx_str_t& value : values.subspan(2)) {
        if (view(value).starts_with(name)) {
            return view(value);
        }
    }
    return {};
}

/// Checks which parameters there are: zone= and either rate= or concurrency=.
char* check_given(ZoneReader& reader)
{
    const bool concurrency = !given(reader, "concurrency=").empty();
    const auto key = view(static_cast<const ngx_str_t*>(reader.cf->args->elts)[1]);
    if (key.starts_with("zone=") && given(reader, "zone=").empty()) {
        reader.parameter = key;
        return reader.expected("the key first, such as $ratelimit_client");
    }
    for (const std::string_view name : { "zone=", "rate=" }) {
        if (given(reader, name).empty() && !(concurrency && name == "rate=")) {
            const ngx_str_t text = borrowed(name);
            ngx_conf_log_error(
                NGX_LOG_EMERG, reader.cf, 0, "\"ratelimit_zone\" must have a \"%V\" parameter",
                &text);
            return failed();
        }
    }
    if (!concurrency) {
        reader.parameter = given(reader, "hold=");
        return reader.parameter.empty() ? NGX_CONF_OK
                                        : reader.expected("no hold, which only concurrency= has");
    }
    for (const std::string_view name : { "rate=", "algorithm=", "burst=", "precision=", "lease=",
                                         "cache=", "block=", "clock=" }) {
        reader.parameter = given(reader, name);
        if (!reader.parameter.empty()) {
            return reader.expected("no such parameter beside concurrency=");
        }
    }
    reader.conf.zone.policy.rate.window = reader.hold.value_or(default_hold);
    return NGX_CONF_OK;
}

/// Checks parameters against the algorithm and the rate.
char* check_policy(ZoneReader& reader)
{
    const Policy& policy = reader.conf.zone.policy;

    if (policy.burst) {
        reader.parameter = given(reader, "burst=");
        if (!keeps_arrival_time(policy.algorithm)) {
            return reader.expected("no burst, which only token_bucket, leaky_bucket and gcra have");
        }
        if (burst_is_too_small(policy.algorithm, *policy.burst)) {
            return reader.expected("a bucket that holds at least one request");
        }
        if (!reader.conf.variable_rate && !policy.burst_fits()) {
            return reader.expected("a burst that refills at this rate within 142 years");
        }
    }
    if (policy.rate.quota > traits_of(policy.algorithm).most_quota) {
        reader.parameter = given(reader, "rate=");
        return reader.expected("at most 10000000 requests for sliding_window_log, which logs each");
    }
    if (policy.block.count() > 0 && reader.conf.zone.lease > 0) {
        reader.parameter = given(reader, "lease=");
        return reader.expected("no lease in a zone with block=");
    }
    if (policy.precision) {
        reader.parameter = given(reader, "precision=");
        if (!traits_of(policy.algorithm).precision) {
            return reader.expected("no precision, which only sliding_window_buckets has");
        }
        if (!reader.conf.variable_rate && *policy.precision > policy.rate.window) {
            return reader.expected("at most the window of the rate");
        }
    }
    return NGX_CONF_OK;
}

char* read_zone(ngx_conf_t* cf, MainConf& main)
{
    auto* values = static_cast<ngx_str_t*>(cf->args->elts);
    ZoneConf conf;
    conf.position = position_of(cf);
    conf.key_text = view(values[1]);

    ngx_http_compile_complex_value_t compile{};
    compile.cf = cf;
    compile.value = &values[1];
    compile.complex_value = &conf.key;
    if (ngx_http_compile_complex_value(&compile) != NGX_OK) {
        return failed();
    }

    ZoneReader reader{ cf, conf, default_size, {}, {} };
    char* result = read_parameters(reader);
    if (result == NGX_CONF_OK) {
        result = check_given(reader);
    }
    if (result == NGX_CONF_OK) {
        result = check_policy(reader);
    }
    if (result != NGX_CONF_OK) {
        return result;
    }

    ngx_str_t name = nginx::copied(cf->pool, conf.zone.name);
    if (name.data == nullptr) {
        return failed();
    }
    if (main.zone_named(conf.zone.name) != nullptr) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "duplicate \"ratelimit_zone\" \"%V\"", &name);
        return failed();
    }
    conf.zone.shared =
        ngx_shared_memory_add(cf, &name, static_cast<size_t>(reader.size), memory_tag(conf));
    if (conf.zone.shared == nullptr) {
        return failed();
    }
    ZoneMemory::prepare(*conf.zone.shared);
    warn_of_changed_tag(cf, *conf.zone.shared);
    main.zones.push_back(std::move(conf));
    return NGX_CONF_OK;
}

}  // namespace

char* zone_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf, conf] {
        return read_zone(cf, static_cast<MainConf&>(*static_cast<MainSettings*>(conf)));
    });
}

}  // namespace ratelimit::http
