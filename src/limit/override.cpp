#include "limit/override.h"

#include "base/hash.h"
#include "limit/rate_text.h"

#include <algorithm>

namespace ratelimit {

namespace {

/// The error if the rate is not of the zone's form (calendar or not).
std::string_view period_misfit(const Rate& rate, const Policy& policy) noexcept
{
    if (policy.calendar == nullptr) {
        return rate.period == Period::none
            ? std::string_view{}
            : "invalid \"rate\", expected a text such as \"100r/s\": the zone has no calendar=";
    }
    if (rate.period == Period::none) {
        return "invalid \"rate\", expected r/day, r/week, r/month or r/year: the zone has "
               "calendar=";
    }
    return policy.rate.quota == 0 || policy.rate.period == rate.period
        ? std::string_view{}
        : "invalid \"rate\", expected one for the same period as the zone's";
}

std::string_view rate_misfit(const Override& override, const Policy& zone) noexcept
{
    const Algorithm algorithm = zone.algorithm;
    if (counts_at_one_time(algorithm)) {
        return "the zone counts requests at one time, expected \"concurrency\" instead of \"rate\"";
    }
    if (override.rate.quota > traits_of(algorithm).most_quota) {
        return "invalid \"rate\", expected at most 10000000 requests for sliding_window_log";
    }
    if (!override.burst) {
        return period_misfit(override.rate, zone);
    }
    if (!keeps_arrival_time(algorithm)) {
        return "invalid \"burst\", which only token_bucket, leaky_bucket and gcra have";
    }
    if (burst_is_too_small(algorithm, *override.burst)) {
        return "invalid \"burst\", expected a bucket that holds at least one request";
    }
    const Policy policy{ algorithm, override.rate, override.burst, {} };
    return policy.burst_fits()
        ? period_misfit(override.rate, zone)
        : "invalid \"burst\", expected one that refills at this rate within 142 years";
}

/// The number depends on nothing else, so that one override has one record wherever it is used.
std::uint32_t record_of(const Override& override) noexcept
{
    constexpr std::uint32_t first = std::uint32_t{ 1 } << 29U;  // beyond all lengths of windows
    const std::uint64_t rate = mixed(mixed(0, override.rate.quota), override.rate.window.count());
    return first + static_cast<std::uint32_t>(mixed(rate, override.burst.value_or(-1)) % first);
}

}  // namespace

std::string_view misfit(const Override& override, const Policy& policy) noexcept
{
    switch (override.kind) {
    case Override::Kind::rate:
        return rate_misfit(override, policy);
    case Override::Kind::concurrency:
        return counts_at_one_time(policy.algorithm)
            ? std::string_view{}
            : "the zone counts requests of a rate, expected \"rate\" instead of \"concurrency\"";
    default:
        return {};
    }
}

void apply(const Override& override, Policy& policy) noexcept
{
    using Kind = Override::Kind;
    if (!misfit(override, policy).empty()) {
        return;
    }
    if (override.kind == Kind::concurrency) {
        policy.rate.quota = override.rate.quota;
    } else if (override.kind == Kind::rate) {
        policy.rate = override.rate;
        policy.override_record = record_of(override);
        if (override.burst) {
            policy.burst = override.burst;
        }
    }
}

void end_with_override(Verdict& state, const Policy& policy, microseconds rest) noexcept
{
    if (policy.begin.count() == 0) {
        state.ends = rest;
        return;
    }
    const auto end_of_block = [&](microseconds& time) {
        if (time == state.blocked) {
            time = std::min(time, rest);
        }
    };
    end_of_block(state.reset);
    if (state.retry_after) {
        end_of_block(*state.retry_after);
    }
    end_of_block(state.blocked);
}

}  // namespace ratelimit
