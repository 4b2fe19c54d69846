#include "limit/parameters.h"
#include "limit/rate_text.h"
#include "limit/variable_text.h"

namespace ratelimit {

namespace {

constexpr std::string_view limit_parameter_names =
    "zone=name, burst=number, nodelay, delay=number, cost=number, charge=variable, "
    "reserve=share, shadow, or off alone";

std::string_view set_count(std::optional<std::int64_t>& out, std::string_view value) noexcept
{
    out = parse_number(value, 0, max_quota);
    return out ? right : "a number of requests from 0 to 1000000000";
}

std::string_view set_flag(bool& flag, std::string_view value) noexcept
{
    flag = true;
    return value.empty() ? right : limit_parameter_names;
}

std::string_view set_zone(LimitSettings& limit, std::string_view value, std::string_view)
{
    limit.zone_name = value;
    return value.empty() ? limit_parameter_names : right;
}

std::string_view set_burst(LimitSettings& limit, std::string_view value, std::string_view)
{
    return set_count(limit.burst, value);
}

std::string_view set_delay(LimitSettings& limit, std::string_view value, std::string_view)
{
    return set_count(limit.delay, value);
}

std::string_view set_nodelay(LimitSettings& limit, std::string_view value, std::string_view)
{
    return set_flag(limit.nodelay, value);
}

std::string_view set_shadow(LimitSettings& limit, std::string_view value, std::string_view)
{
    return set_flag(limit.shadow, value);
}

std::string_view set_cost(LimitSettings& limit, std::string_view value, std::string_view)
{
    if (has_variable(value)) {
        limit.cost_text = value;
        return expected_variables(value, VariableUse::cost);
    }
    const auto cost = parse_number(value, 0, max_cost);
    limit.cost = cost.value_or(1);
    return cost ? right : "a number from 0 to 1000000000 or a variable";
}

std::string_view set_charge(LimitSettings& limit, std::string_view value, std::string_view)
{
    limit.charge_text = value;
    return has_variable(value) ? expected_variables(value, VariableUse::charge)
                               : "charge= with a variable";
}

std::string_view set_reserve(LimitSettings& limit, std::string_view value, std::string_view)
{
    if (has_variable(value)) {
        limit.reserve_text = value;
        return expected_variables(value, VariableUse::other);
    }
    const auto reserve = parse_reserve(value);
    limit.reserve = reserve.value_or(Reserve{});
    return reserve ? right : "a share from 0% to 100%, a number from 0 to 1000000000 or a variable";
}

constexpr Parameter<LimitSettings> limit_parameters[] = {
    { "zone=", set_zone },      { "burst=", set_burst },     { "delay=", set_delay },
    { "nodelay", set_nodelay }, { "cost=", set_cost },       { "charge=", set_charge },
    { "shadow", set_shadow },   { "reserve=", set_reserve },
};

/// The zone's policy under this limit.
Policy policy_of(const LimitSettings& limit, const LimitedZone& zone)
{
    Policy policy = *zone.policy;
    policy.burst = limit.burst ? limit.burst : policy.burst;
    policy.reserve = limit.reserve.of(policy.whole());
    return policy;
}

/// A reserve against its zone.
std::optional<WordError> check_reserve(const LimitSettings& limit, const LimitedZone& zone)
{
    const std::string word =
        "reserve=" + (limit.reserve_text.empty() ? limit.reserve.text() : limit.reserve_text);
    if (zone.lease) {
        return WordError{ word, "no reserve for a zone with lease=, which takes requests ahead" };
    }
    if (zone.ahead) {
        return WordError{ word, "no reserve for a zone with ahead=, which decides before Redis" };
    }
    const Policy policy = policy_of(limit, zone);
    return policy.rate.quota > 0 && policy.limit() == 0
        ? std::optional<WordError>({ word, "a reserve that leaves room for a request" })
        : std::nullopt;
}

/// A constant cost against a constant limit: no request would ever pass.
std::optional<WordError> check_cost(const LimitSettings& limit, const LimitedZone& zone)
{
    const Policy policy = policy_of(limit, zone);
    if (policy.rate.quota == 0 || !limit.cost_text.empty() || limit.cost <= policy.limit()) {
        return std::nullopt;
    }
    return WordError{ "cost=" + std::to_string(limit.cost),
                      "at most what passes at once: the quota, or what the burst admits, less the "
                      "reserve" };
}

}  // namespace

std::optional<WordError> read_words(Words words, LimitSettings& limit)
{
    if (auto error = read_parameters(words, limit_parameters, limit_parameter_names, limit)) {
        return error;
    }
    if (limit.zone_name.empty()) {
        return WordError{ "zone=", {} };
    }
    if (limit.nodelay && limit.delay) {
        return WordError{ "nodelay", "either nodelay or delay=" };
    }
    return std::nullopt;
}

std::optional<WordError> check_limit(const LimitSettings& limit, const LimitedZone& zone)
{
    if (zone.policy == nullptr) {
        return WordError{ "zone=" + limit.zone_name, "the name of a \"ratelimit_zone\"" };
    }
    const AlgorithmTraits& traits = traits_of(zone.policy->algorithm);

    if (limit.burst) {
        const auto expected = expected_burst(*zone.policy, *limit.burst);
        if (!expected.empty()) {
            return WordError{ "burst=" + std::to_string(*limit.burst), expected };
        }
    }
    if (!limit.charge_text.empty() && traits.at_one_time) {
        return WordError{ "charge=", "no charge, which concurrency= does not have" };
    }
    if ((limit.nodelay || limit.delay) && !traits.delays) {
        return WordError{ limit.delay ? "delay=" + std::to_string(*limit.delay) : "nodelay",
                          "no delay, which only leaky_bucket has" };
    }
    const bool free = limit.cost == 0 && limit.cost_text.empty();  // and therefore not delayed
    if (zone.ahead && traits.delays && !limit.nodelay && !free) {
        return WordError{ limit.delay ? "delay=" + std::to_string(*limit.delay)
                                      : "zone=" + limit.zone_name,
                          "nodelay for a zone with ahead=, since only Redis knows the delay" };
    }
    if (limit.has_reserve()) {
        if (auto error = check_reserve(limit, zone)) {
            return error;
        }
    }
    return check_cost(limit, zone);
}

}  // namespace ratelimit
