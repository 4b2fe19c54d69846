#include "conf/limit_directive.h"

#include "check/script_text.h"
#include "conf/conf.h"
#include "conf/conf_error.h"
#include "conf/usage_directive.h"
#include "nginx/guarded.h"
#include "nginx/pool.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace ratelimit {

namespace {

using nginx::borrowed;

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

/// Compiles cost=, charge= and reserve= if they have variables.
char* compile_values(ngx_conf_t* cf, LimitConf& limit)
{
    const auto value = [&](const std::string& text, ngx_http_complex_value_t& out) -> char* {
        if (text.empty()) {
            return NGX_CONF_OK;
        }
        if (counts_bytes(text)) {
            limit.unit = QuotaUnit::content_bytes;
        }
        return compile(cf, text, out);
    };
    char* result = value(limit.cost_text, limit.cost_value);
    result = result == NGX_CONF_OK ? value(limit.charge_text, limit.charge) : result;
    return result == NGX_CONF_OK ? value(limit.reserve_text, limit.reserve_value) : result;
}

char* read_limits(ngx_conf_t* cf, LocationConf& location)
{
    const auto words = words_of(cf);
    const bool off = words.size() == 1 && words.front() == "off";

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
    limit.position = position_of(cf);
    if (const auto error = read_words(words, limit)) {
        return word_error(cf, *error);
    }
    if (char* const result = compile_values(cf, limit); result != NGX_CONF_OK) {
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

/// For errors that are found only after all of the configuration has been read.
char* late_error(ngx_conf_t* cf, const LimitConf& limit, const WordError& error)
{
    const std::string message = error.message(limit.title());
    const ngx_str_t text = borrowed(message);
    ngx_log_error(
        NGX_LOG_EMERG, cf->log, 0, "%V in %V:%ui", &text, &limit.position.file,
        limit.position.line);
    return failed();
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

LimitedZone limited_zone(const ZoneConf* conf) noexcept
{
    return conf == nullptr
        ? LimitedZone{}
        : LimitedZone{ &conf->zone.policy, conf->zone.ahead > 0, conf->zone.lease > 0 };
}

bool blocks(const LimitConf& limit) noexcept
{
    return limit.zone->zone.policy.block.count() > 0;
}

/// Makes the sequences of each Redis. Each sequence has as many of its next limits in the location
/// as a sequence may have.
void add_sequences(LimitSet& set)
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
        auto& scripts = set.sequences.emplace_back(sequence, redis->scripts);
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
    if (limit.charges() || limit.zone->zone.ahead > 0) {
        limit.scripts.charge =
            scripts.add(charge_script(limit.zone->zone.policy.algorithm), redis::Added::goes_first);
    }
    if (blocks(limit)) {
        limit.scripts.block = scripts.add(block_script());
    }
    if (holds(limit)) {
        limit.scripts.statement = scripts.add(single_script(Algorithm::concurrency));
        return;
    }
    limit.scripts.refund = scripts.add(refund_script());
    const bool spans_servers = algorithms.size() > 1 && may_span_shards;
    limit.zone->zone.spans_servers = limit.zone->zone.spans_servers || spans_servers;
    if (limit.charges() || spans_servers) {
        remember_briefly(*limit.zone);  // a refund can free a key
    }
}

std::string policy_header_of(std::span<const LimitConf> limits)
{
    std::vector<HeaderMember> members;
    for (const LimitConf& limit : limits) {
        if (!limit.one_policy()) {
            return {};
        }
        if (!limit.shadow) {
            members.push_back({ limit.zone->zone.name, limit.policy, limit.unit, std::nullopt });
        }
    }
    std::string text(header_room(members), '\0');
    text.resize(policy_header(members, text.data()).size());
    return text;
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
        if (const auto error = check_limit(limit, limited_zone(limit.zone))) {
            return late_error(cf, limit, *error);
        }
        if (reads_usage(main, limit.cost_text)) {
            return late_error(cf, limit, { "cost=" + limit.cost_text, known_with_response });
        }
        limit.policy = limit.zone->zone.policy;
        limit.policy.burst = limit.burst ? limit.burst : limit.policy.burst;
        limit.policy_hash = limit.one_policy() ? limit.zone->zone.policy_hash(limit.policy) : 0;
        algorithms.push_back(limit.policy.algorithm);
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
    set.charges = std::any_of(set.limits.begin(), set.limits.end(), [](const LimitConf& limit) {
        return limit.charges();
    });
    add_sequences(set);
    for (LimitConf& limit : set.limits) {
        if (limit.zone->redis == nullptr) {
            continue;
        }
        add_scripts(limit, algorithms, may_span_shards);
        // On any node, a request under another policy can reduce what is stored of the key, and a
        // request of a smaller cost or reserve can pass while one of a larger one is refused.
        if (limit.zone->variable_rate() || limit.variable_cost() || limit.has_reserve()
            || (limit.burst && limit.burst != limit.zone->zone.policy.burst)
            || (limit.cost > 0 && limit.zone->cost.value_or(limit.cost) != limit.cost)) {
            remember_briefly(*limit.zone);
        }
        if (limit.cost > 0) {
            limit.zone->cost = limit.cost;
        }
    }
    set.policy_header = policy_header_of(set.limits);
    set.resolved = true;
    return NGX_CONF_OK;
}

char* limit_directive(ngx_conf_t* cf, ngx_command_t*, void* conf) noexcept
{
    return nginx::guarded(cf->log, failed(), [cf, conf] {
        return read_limits(cf, *static_cast<LocationConf*>(conf));
    });
}

}  // namespace ratelimit
