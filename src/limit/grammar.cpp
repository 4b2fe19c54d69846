#include "limit/grammar.h"

namespace ratelimit {

bool good_name(std::string_view name) noexcept
{
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyz"
                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    return !name.empty() && name.front() != '.'
        && name.find_first_not_of(allowed) == std::string_view::npos;
}

std::string_view expected_burst(const Policy& policy, std::int64_t burst) noexcept
{
    Policy with = policy;
    with.burst = burst;
    if (!keeps_arrival_time(policy.algorithm)) {
        return "no burst, which only token_bucket, leaky_bucket and gcra have";
    }
    if (burst_is_too_small(policy.algorithm, burst)) {
        return "a bucket that holds at least one request";
    }
    return policy.rate.quota > 0 && !with.burst_fits()
        ? "a burst that refills at this rate within 142 years"
        : std::string_view{};
}

std::string WordError::message(std::string_view directive) const
{
    const std::string name = '"' + std::string(directive) + '"';
    return expected.empty()
        ? name + " must have a \"" + word + "\" parameter"
        : name + ": invalid \"" + word + "\", expected " + std::string(expected);
}

std::optional<WordError> find_time_zone(ZoneSettings& zone)
{
    if (zone.calendar == nullptr) {
        return std::nullopt;
    }
    const std::string name = zone.calendar->name;
    switch (read_time_zone(name, *zone.calendar)) {
    case TimeZoneError::none:
        return std::nullopt;
    case TimeZoneError::unknown:
        return WordError{ "calendar=" + name, "a time zone that this machine has" };
    case TimeZoneError::no_data:
        break;
    }
    return WordError{ "calendar=" + name,
                      "UTC, since this machine has no time zones: install the package tzdata" };
}

}  // namespace ratelimit
