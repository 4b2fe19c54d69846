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

}  // namespace ratelimit
