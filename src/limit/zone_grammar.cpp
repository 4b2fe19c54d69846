#include "limit/calendar.h"
#include "limit/fail_mode.h"
#include "limit/parameters.h"
#include "limit/rate_text.h"
#include "limit/variable_text.h"

#include <limits>

namespace ratelimit {

namespace {

constexpr std::size_t least_zone_size = std::size_t{ 32 } * 1024;
constexpr std::int64_t max_lease = 1'000'000;
constexpr std::int64_t max_ahead = 1'000'000;
constexpr std::chrono::seconds default_hold{ 60 };
constexpr std::chrono::hours longest_hold{ 24 };

/// "512k", "10m", "65536": bytes, as nginx reads a size.
std::optional<std::size_t> parse_size(std::string_view text) noexcept
{
    std::int64_t unit = 1;
    if (text.ends_with('k') || text.ends_with('K')) {
        unit = 1024;
    } else if (text.ends_with('m') || text.ends_with('M')) {
        unit = std::int64_t{ 1024 } * 1024;
    }
    if (unit > 1) {
        text.remove_suffix(1);
    }
    const auto count = parse_number(text, 0, std::numeric_limits<std::int64_t>::max() / unit);
    return count ? std::optional(static_cast<std::size_t>(*count * unit)) : std::nullopt;
}

std::string_view set_name(ZoneSettings& zone, std::string_view value, std::string_view)
{
    const auto colon = value.find(':');
    zone.name = value.substr(0, colon);
    if (!good_name(zone.name)) {
        return "zone=name or zone=name:size, the name of letters, digits, _ . or -, not starting "
               "with a dot";
    }
    if (colon != value.npos) {
        const auto size = parse_size(value.substr(colon + 1));
        if (!size) {
            return "a size such as 512k or 10m";
        }
        if (*size < least_zone_size) {
            return "a size of at least 32k";
        }
        zone.size = *size;
    }
    return right;
}

std::string_view set_rate(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.rate_text = value;
    if (has_variable(value)) {
        return expected_variables(value, VariableUse::other);
    }
    auto rate = parse_rate(value);
    if (!rate) {
        rate = parse_calendar_rate(value);
    }
    zone.policy.rate = rate.value_or(Rate{});
    return rate ? right : expected_rate(value);
}

std::string_view set_algorithm(ZoneSettings& zone, std::string_view value, std::string_view)
{
    const auto algorithm = algorithm_named(value);
    zone.policy.algorithm = algorithm.value_or(zone.policy.algorithm);
    return algorithm ? right
                     : "fixed_window, sliding_window_counter, sliding_window_log, "
                       "sliding_window_buckets, token_bucket, leaky_bucket or gcra";
}

std::string_view set_burst(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.policy.burst = parse_number(value, 0, max_quota);
    return zone.policy.burst ? right : "a number of requests from 0 to 1000000000";
}

std::string_view set_precision(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.policy.precision = parse_seconds(value);
    return zone.policy.precision ? right : "a time from 1s to 366d, such as 10s or 1m";
}

std::string_view set_concurrency(ZoneSettings& zone, std::string_view value, std::string_view)
{
    const auto most = parse_number(value, 1, max_quota);
    zone.policy.algorithm = Algorithm::concurrency;
    zone.policy.rate.quota = most.value_or(0);
    zone.cache = false;  // a request may end at any time
    return most ? right : "a number of requests at one time from 1 to 1000000000";
}

std::string_view set_hold(ZoneSettings& zone, std::string_view value, std::string_view)
{
    const auto hold = parse_seconds(value);
    if (!hold || *hold > longest_hold) {
        return "a time from 1s to 1d";
    }
    zone.policy.rate.window = *hold;
    return right;
}

std::string_view set_redis(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.redis = value;
    return value.empty() ? "the name of a \"ratelimit_redis\"" : right;
}

std::string_view set_clock(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.clock = value == "local" ? Clock::local : Clock::redis;
    return value == "redis" || value == "local" ? right : "clock=redis or clock=local";
}

/// From 1 to `most`, or a word, which is 0.
std::optional<std::int64_t> number_or(
    std::string_view word, std::string_view value, std::int64_t most) noexcept
{
    return value == word ? std::optional<std::int64_t>{ 0 } : parse_number(value, 1, most);
}

std::string_view set_nodes(ZoneSettings& zone, std::string_view value, std::string_view word)
{
    const auto nodes = number_or("auto", value, max_nodes);
    zone.nodes = nodes.value_or(1);
    if (zone.nodes != 1) {
        zone.redis_parameter = word;
    }
    return nodes ? right : "a number of nodes from 1 to 10000, or nodes=auto";
}

std::string_view set_cache(ZoneSettings& zone, std::string_view value, std::string_view word)
{
    zone.cache = value == "on";
    zone.redis_parameter = word;
    return value == "on" || value == "off" ? right : "cache=on or cache=off";
}

std::string_view set_lease(ZoneSettings& zone, std::string_view value, std::string_view word)
{
    const auto lease = number_or("off", value, max_lease);
    zone.lease = lease.value_or(0);
    zone.redis_parameter = word;
    return lease ? right : "a number of requests from 1 to 1000000, or lease=off";
}

std::string_view set_ahead(ZoneSettings& zone, std::string_view value, std::string_view word)
{
    const auto ahead = number_or("off", value, max_ahead);
    zone.ahead = ahead.value_or(0);
    zone.redis_parameter = word;
    return ahead ? right : "a number of requests from 1 to 1000000, or ahead=off";
}

std::string_view set_block(ZoneSettings& zone, std::string_view value, std::string_view)
{
    const auto block = parse_seconds(value);
    zone.policy.block = block.value_or(microseconds{ 0 });
    return block ? right : "a time from 1s to 366d, such as 10m or 1h";
}

std::string_view set_hash_key(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.hash_key = true;
    return value.empty() ? right : "hash_key alone, without a value";
}

std::string_view set_calendar(ZoneSettings& zone, std::string_view value, std::string_view)
{
    zone.calendar = std::make_shared<TimeZone>();
    zone.calendar->name = value;
    zone.policy.calendar = zone.calendar.get();
    return can_be_time_zone(value) ? right : "a time zone such as UTC or Europe/Berlin";
}

std::string_view set_start(ZoneSettings& zone, std::string_view value, std::string_view)
{
    if (has_variable(value)) {
        zone.start_text = value;
        return expected_variables(value, VariableUse::other);
    }
    const auto day = parse_start_day(value);
    zone.policy.start_day = day.value_or(1);
    return day ? right : "a day of the month from 1 to 31 or a variable";
}

constexpr Parameter<ZoneSettings> zone_parameters[] = {
    { "zone=", set_name },   { "rate=", set_rate },           { "algorithm=", set_algorithm },
    { "burst=", set_burst }, { "precision=", set_precision }, { "redis=", set_redis },
    { "clock=", set_clock }, { "nodes=", set_nodes },         { "cache=", set_cache },
    { "lease=", set_lease }, { "hash_key", set_hash_key },    { "concurrency=", set_concurrency },
    { "hold=", set_hold },   { "block=", set_block },         { "ahead=", set_ahead },
    { "start=", set_start }, { "calendar=", set_calendar },
};
constexpr std::string_view zone_parameter_names =
    "zone=, rate=, algorithm=, burst=, precision=, redis=, clock=, nodes=, cache=, lease=, ahead=, "
    "block=, hash_key, calendar=, start=, concurrency= or hold=";

/// The parameter that begins with this name, with its value. Empty: there is none.
std::string given(Words words, std::string_view name)
{
    const auto found = std::find_if(
        words.begin(), words.end(), [name](auto word) { return word.starts_with(name); });
    return found == words.end() ? std::string() : std::string(*found);
}

/// The key, whose variables must be known when a request is counted.
std::optional<WordError> check_key(const ZoneSettings& zone)
{
    if (zone.key.empty()) {
        return WordError{ zone.key, "a key, since a request with an empty one is not limited" };
    }
    const auto expected = names_variable(zone.key)
        ? std::string_view{ "\"$\" before the name of a variable" }
        : expected_variables(zone.key, VariableUse::key);
    return expected.empty() ? std::nullopt : std::optional<WordError>{ { zone.key, expected } };
}

/// Which parameters there are: zone= and either rate= or concurrency=.
std::optional<WordError> check_given(Words words, ZoneSettings& zone)
{
    const bool concurrency = !given(words, "concurrency=").empty();
    if (zone.name.empty() && zone.key.starts_with("zone=")) {
        return WordError{ zone.key, "the key first, such as $ratelimit_client" };
    }
    for (const std::string_view name : { "zone=", "rate=" }) {
        if (given(words, name).empty() && !(concurrency && name == "rate=")) {
            return WordError{ name == "rate=" ? "rate=\" or \"concurrency=" : "zone=", {} };
        }
    }
    const std::string hold = given(words, "hold=");
    if (!concurrency) {
        return hold.empty()
            ? std::nullopt
            : std::optional<WordError>{ { hold, "no hold, which only concurrency= has" } };
    }
    if (hold.empty()) {
        zone.policy.rate.window = default_hold;
    }
    for (const std::string_view name :
         { "rate=", "algorithm=", "burst=", "precision=", "lease=", "ahead=", "cache=", "block=",
           "clock=", "calendar=", "start=" }) {
        const std::string other = given(words, name);
        if (!other.empty()) {
            return WordError{ other, "no such parameter beside concurrency=" };
        }
    }
    return std::nullopt;
}

/// Parameters against the algorithm and the rate.
std::optional<WordError> check_policy(Words words, const ZoneSettings& zone)
{
    const Policy& policy = zone.policy;
    const AlgorithmTraits& traits = traits_of(policy.algorithm);

    if (policy.burst) {
        const auto expected = expected_burst(policy, *policy.burst);
        if (!expected.empty()) {
            return WordError{ given(words, "burst="), expected };
        }
    }
    if (policy.rate.quota > traits.most_quota) {
        return WordError{ given(words, "rate="),
                          "at most 10000000 requests for sliding_window_log, which logs each" };
    }
    if (policy.block.count() > 0 && zone.lease > 0) {
        return WordError{ given(words, "lease="), "no lease in a zone with block=" };
    }
    if (policy.precision && !traits.precision) {
        return WordError{ given(words, "precision="),
                          "no precision, which only sliding_window_buckets has" };
    }
    if (policy.precision && !zone.variable_rate() && *policy.precision > policy.rate.window) {
        return WordError{ given(words, "precision="), "at most the window of the rate" };
    }
    return std::nullopt;
}

/// What cannot stand beside ahead=.
std::optional<WordError> check_ahead(Words words, const ZoneSettings& zone)
{
    if (zone.ahead == 0) {
        return std::nullopt;
    }
    if (zone.policy.block.count() > 0) {
        return WordError{ given(words, "ahead="), "no ahead in a zone with block=" };
    }
    if (zone.lease > 0) {
        return WordError{ given(words, "ahead="), "no ahead in a zone with lease=" };
    }
    if (zone.clock == Clock::local) {
        return WordError{ given(words, "clock="),
                          "clock=redis in a zone with ahead=, which orders answers by that clock" };
    }
    if (!zone.variable_rate() && zone.ahead > zone.policy.limit()) {
        return WordError{ given(words, "ahead="),
                          "at most what passes at once: the quota, or what the burst admits" };
    }
    return std::nullopt;
}

/// Of a zone without calendar=.
std::optional<WordError> check_no_calendar(Words words, const ZoneSettings& zone)
{
    if (zone.policy.rate.period != Period::none) {
        return WordError{ given(words, "rate="),
                          "calendar= beside it, with a time zone such as UTC or Europe/Berlin" };
    }
    const std::string start = given(words, "start=");
    return start.empty() ? std::nullopt
                         : std::optional<WordError>{ { start, "calendar= beside it" } };
}

/// What can stand beside calendar=. The node's clock decides the period of a request.
std::optional<WordError> check_calendar(Words words, ZoneSettings& zone)
{
    if (zone.calendar == nullptr) {
        return check_no_calendar(words, zone);
    }
    const auto wrong = [words](std::string_view name, std::string_view expected) {
        return WordError{ given(words, name), expected };
    };
    if (zone.policy.algorithm != Algorithm::fixed_window) {
        return wrong("calendar=", "algorithm=fixed_window beside it");
    }
    const Period period = zone.policy.rate.period;
    if (period == Period::none && !zone.variable_rate()) {
        return wrong("rate=", "r/day, r/week, r/month or r/year in a zone with calendar=");
    }
    const std::string start = given(words, "start=");
    if (!start.empty() && period != Period::month && !zone.variable_rate()) {
        return WordError{ start, "no start=, which only a rate in r/month has" };
    }
    for (const std::string_view name : { "lease=", "ahead=" }) {
        if (!given(words, name).empty()) {
            return wrong(name, "no such parameter beside calendar=");
        }
    }
    if (zone.clock == Clock::redis && !given(words, "clock=").empty()) {
        return wrong("clock=", "clock=local, or none, beside calendar=");
    }
    zone.clock = Clock::local;
    return std::nullopt;
}

}  // namespace

std::optional<WordError> read_words(Words words, ZoneSettings& zone)
{
    zone.key = words.front();
    words = words.subspan(1);
    auto error = read_parameters(words, zone_parameters, zone_parameter_names, zone);
    if (!error) {
        error = check_given(words, zone);
    }
    if (!error) {
        error = check_key(zone);
    }
    if (!error) {
        error = check_policy(words, zone);
    }
    if (!error) {
        error = check_calendar(words, zone);
    }
    return error ? error : check_ahead(words, zone);
}

}  // namespace ratelimit
