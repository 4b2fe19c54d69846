#include "rehearse/limit_conf.h"

#include "limit/rate_text.h"

#include <algorithm>
#include <array>
#include <set>

namespace ratelimit::rehearse {

namespace {

[[noreturn]] void expected(
    const Directive& directive, std::string_view value, std::string_view what)
{
    fail_at(
        directive.place,
        "\"" + directive.name + "\": invalid \"" + std::string(value) + "\", expected "
            + std::string(what));
}

bool good_name(std::string_view name) noexcept
{
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz"
                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return !name.empty() && name.front() != '.'
        && name.find_first_not_of(allowed) == std::string_view::npos;
}

bool has_variable(std::string_view text) noexcept
{
    return text.find('$') != std::string_view::npos;
}

/// A parameter with its value.
struct Parameter {
    std::string_view name;  // with its equals sign
    std::string_view value;

    explicit Parameter(std::string_view text) noexcept
    {
        const auto equals = text.find('=');
        name = text.substr(0, equals == std::string_view::npos ? equals : equals + 1);
        value = text.substr(name.size());
    }
};

void each_once(const Directive& directive, std::size_t first)
{
    std::set<std::string_view> seen;
    for (std::size_t i = first; i < directive.args.size(); ++i) {
        if (!seen.insert(Parameter(directive.args[i]).name).second) {
            expected(directive, directive.args[i], "each parameter once");
        }
    }
}

/// "512k", "10m", "65536"; the size itself does not matter here.
bool good_size(std::string_view text) noexcept
{
    if (!text.empty() && std::string_view("kKmM").find(text.back()) != std::string_view::npos) {
        text.remove_suffix(1);
    }
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void set_name(ZoneConf& zone, const Directive& directive, std::string_view value)
{
    const auto colon = value.find(':');
    zone.name = value.substr(0, colon);
    if (!good_name(zone.name)) {
        expected(
            directive, "zone=" + std::string(value),
            "zone=name or zone=name:size, the name of letters, digits, _ . or -, not starting with "
            "a dot");
    }
    if (colon != value.npos && !good_size(value.substr(colon + 1))) {
        expected(directive, "zone=" + std::string(value), "a size such as 512k or 10m");
    }
}

void set_rate(ZoneConf& zone, const Directive& directive, std::string_view value)
{
    zone.rate_text = value;
    if (has_variable(value)) {
        return;
    }
    const auto rate = parse_rate(value);
    if (!rate) {
        expected(directive, "rate=" + std::string(value), expected_rate(value));
    }
    zone.policy.rate = *rate;
}

void set_concurrency(ZoneConf& zone, const Directive& directive, std::string_view value)
{
    const auto most = parse_number(value, 1, max_quota);
    if (!most) {
        expected(
            directive, "concurrency=" + std::string(value),
            "a number of requests at one time from 1 to 1000000000");
    }
    zone.policy.algorithm = Algorithm::concurrency;
    zone.policy.rate.quota = *most;
}

/// `hold` itself does not matter: it frees only what a worker neither releases nor renews.
void check_hold(const Directive& directive, std::string_view value)
{
    const auto hold = parse_seconds(value);
    if (!hold || *hold > std::chrono::hours{ 24 }) {
        expected(directive, "hold=" + std::string(value), "a time from 1s to 1d");
    }
}

/// Parameters that change where and how a zone is counted, but no decision of a single node.
bool of_redis(std::string_view name) noexcept
{
    constexpr std::array<std::string_view, 5> names = { "redis=", "clock=", "nodes=", "cache=",
                                                        "lease=" };
    return std::find(names.begin(), names.end(), name) != names.end();
}

void set_parameter(ZoneConf& zone, const Directive& directive, const std::string& text)
{
    const auto [name, value] = Parameter(text);
    if (name == "zone=") {
        set_name(zone, directive, value);
    } else if (name == "rate=") {
        set_rate(zone, directive, value);
    } else if (name == "algorithm=") {
        const auto algorithm = algorithm_named(value);
        if (!algorithm) {
            expected(
                directive, text,
                "fixed_window, sliding_window_counter, sliding_window_log, "
                "sliding_window_buckets, token_bucket, leaky_bucket or gcra");
        }
        zone.policy.algorithm = *algorithm;
    } else if (name == "burst=") {
        zone.policy.burst = parse_number(value, 0, max_quota);
        if (!zone.policy.burst) {
            expected(directive, text, "a number of requests from 0 to 1000000000");
        }
    } else if (name == "precision=") {
        zone.policy.precision = parse_seconds(value);
        if (!zone.policy.precision) {
            expected(directive, text, "a time from 1s to 366d, such as 10s or 1m");
        }
    } else if (name == "hash_key") {
        zone.hash_key = true;
    } else if (name == "block=") {
        const auto block = parse_seconds(value);
        if (!block) {
            expected(directive, text, "a time from 1s to 366d, such as 10m or 1h");
        }
        zone.policy.block = *block;
    } else if (name == "concurrency=") {
        set_concurrency(zone, directive, value);
    } else if (name == "hold=") {
        check_hold(directive, value);
    } else if (!of_redis(name)) {
        expected(
            directive, text,
            "zone=, rate=, algorithm=, burst=, precision=, redis=, clock=, nodes=, cache=, lease=, "
            "block=, hash_key, concurrency= or hold=");
    }
}

/// The parameter of this name, with its value; empty: there is none.
std::string given(const Directive& directive, std::string_view name)
{
    for (std::size_t i = 1; i < directive.args.size(); ++i) {
        if (Parameter(directive.args[i]).name == name) {
            return directive.args[i];
        }
    }
    return {};
}

/// Checks that the zone has a name, and either rate= or concurrency=.
void check_given(const ZoneConf& zone, const Directive& directive)
{
    const bool concurrency = !given(directive, "concurrency=").empty();
    if (zone.key.starts_with("zone=") && zone.name.empty()) {
        expected(directive, zone.key, "the key first, such as $ratelimit_client");
    }
    if (zone.name.empty()) {
        fail_at(directive.place, R"("ratelimit_zone" must have a "zone=" parameter)");
    }
    if (zone.rate_text.empty() && !concurrency) {
        fail_at(directive.place, R"("ratelimit_zone" must have a "rate=" parameter)");
    }
    const std::string hold = given(directive, "hold=");
    if (!concurrency && !hold.empty()) {
        expected(directive, hold, "no hold, which only concurrency= has");
    }
    for (const std::string_view name :
         { "rate=", "algorithm=", "burst=", "precision=", "lease=", "cache=", "block=" }) {
        const std::string other = given(directive, name);
        if (concurrency && !other.empty()) {
            expected(directive, other, "no such parameter beside concurrency=");
        }
    }
}

void check_policy(const ZoneConf& zone, const Directive& directive)
{
    const Policy& policy = zone.policy;
    if (policy.burst) {
        const std::string text = given(directive, "burst=");
        if (!keeps_arrival_time(policy.algorithm)) {
            expected(
                directive, text, "no burst, which only token_bucket, leaky_bucket and gcra have");
        }
        if (burst_is_too_small(policy.algorithm, *policy.burst)) {
            expected(directive, text, "a bucket that holds at least one request");
        }
        if (!zone.variable_rate() && !policy.burst_fits()) {
            expected(directive, text, "a burst that refills at this rate within 142 years");
        }
    }
    if (policy.rate.quota > traits_of(policy.algorithm).most_quota) {
        expected(
            directive, "rate=" + zone.rate_text,
            "at most 10000000 requests for sliding_window_log, which logs each");
    }
    if (policy.precision) {
        const std::string text = given(directive, "precision=");
        if (!traits_of(policy.algorithm).precision) {
            expected(directive, text, "no precision, which only sliding_window_buckets has");
        }
        if (!zone.variable_rate() && *policy.precision > policy.rate.window) {
            expected(directive, text, "at most the window of the rate");
        }
    }
}

[[noreturn]] void wrong_limit(
    const Directive& directive, const ZoneConf& zone, const std::string& error)
{
    fail_at(directive.place, "\"ratelimit zone=" + zone.name + "\": " + error);
}

void check_limit(const LimitConf& limit, const ZoneConf& zone, const Directive& directive)
{
    const Algorithm algorithm = zone.policy.algorithm;
    if (limit.burst) {
        const std::string text =
            "invalid \"burst=" + std::to_string(*limit.burst) + "\", expected ";
        Policy policy = zone.policy;
        policy.burst = limit.burst;
        if (!keeps_arrival_time(algorithm)) {
            wrong_limit(
                directive, zone,
                text + "no burst, which only token_bucket, leaky_bucket and gcra have");
        }
        if (burst_is_too_small(algorithm, *limit.burst)) {
            wrong_limit(directive, zone, text + "a bucket that holds at least one request");
        }
        if (!zone.variable_rate() && !policy.burst_fits()) {
            wrong_limit(
                directive, zone, text + "a burst that refills at this rate within 142 years");
        }
    }
    if ((limit.nodelay || limit.delay) && !traits_of(algorithm).delays) {
        const auto delay = limit.delay ? "delay=" + std::to_string(*limit.delay) : "nodelay";
        wrong_limit(
            directive, zone,
            "invalid \"" + delay + "\", expected no delay, which only leaky_bucket has");
    }
    if (!limit.charge.empty() && counts_at_one_time(algorithm)) {
        wrong_limit(
            directive, zone,
            "invalid \"charge=\", expected no charge, which concurrency= does not have");
    }
}

void set_limit_parameter(
    LimitConf& limit, std::string& zone_name, const Directive& directive, const std::string& text)
{
    const Parameter parameter(text);
    const auto name = parameter.name;
    const auto value = parameter.value;
    const auto number = [&](std::optional<std::int64_t>& out) {
        out = parse_number(value, 0, max_quota);
        if (!out) {
            expected(directive, text, "a number of requests from 0 to 1000000000");
        }
    };
    if (name == "zone=" && !value.empty()) {
        zone_name = value;
    } else if (name == "burst=") {
        number(limit.burst);
    } else if (name == "delay=") {
        number(limit.delay);
    } else if (name == "cost=" && has_variable(value)) {
        limit.cost_text = value;
    } else if (name == "cost=") {
        const auto cost = parse_number(value, 0, max_cost);
        if (!cost) {
            expected(directive, text, "a number from 0 to 1000000000 or a variable");
        }
        limit.cost = *cost;
    } else if (name == "charge=") {
        if (!has_variable(value)) {
            expected(directive, text, "charge= with a variable");
        }
        limit.charge = value;
    } else if (text == "nodelay") {
        limit.nodelay = true;
    } else if (text == "shadow") {
        limit.shadow = true;
    } else {
        expected(
            directive, text,
            "zone=name, burst=number, nodelay, delay=number, cost=number, charge=variable, shadow, "
            "or off alone");
    }
}

}  // namespace

ZoneConf read_zone(const Directive& directive)
{
    if (directive.has_block || directive.args.size() < 2) {
        fail_at(directive.place, "invalid number of arguments in \"ratelimit_zone\" directive");
    }
    ZoneConf zone;
    zone.place = directive.place;
    zone.key = directive.args[0];
    each_once(directive, 1);
    for (std::size_t i = 1; i < directive.args.size(); ++i) {
        set_parameter(zone, directive, directive.args[i]);
    }
    check_given(zone, directive);
    check_policy(zone, directive);
    return zone;
}

LimitConf read_limit(const Directive& directive, const std::vector<ZoneConf>& zones)
{
    LimitConf limit;
    limit.place = directive.place;
    std::string zone_name;
    each_once(directive, 0);
    for (const auto& text : directive.args) {
        set_limit_parameter(limit, zone_name, directive, text);
    }
    if (zone_name.empty() || directive.has_block) {
        fail_at(directive.place, R"("ratelimit" must have a "zone=" parameter or be "off")");
    }
    if (limit.nodelay && limit.delay) {
        expected(directive, "nodelay", "either nodelay or delay=");
    }
    const auto zone = std::find_if(
        zones.begin(), zones.end(), [&](const ZoneConf& one) { return one.name == zone_name; });
    if (zone == zones.end()) {
        fail_at(
            directive.place,
            "\"ratelimit zone=" + zone_name
                + "\": unknown zone, expected the name of a \"ratelimit_zone\"");
    }
    limit.zone = static_cast<std::size_t>(zone - zones.begin());
    check_limit(limit, *zone, directive);
    return limit;
}

std::string rate_text(const Rate& rate)
{
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(rate.window).count();
    constexpr std::array<std::pair<std::int64_t, char>, 4> units = {
        { { 86'400, 'd' }, { 3'600, 'h' }, { 60, 'm' }, { 1, 's' } }
    };
    for (const auto& [length, letter] : units) {
        if (seconds % length == 0) {
            const std::int64_t count = seconds / length;
            return std::to_string(rate.quota) + "r/" + (count == 1 ? "" : std::to_string(count))
                + letter;
        }
    }
    return {};
}

}  // namespace ratelimit::rehearse
