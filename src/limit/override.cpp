#include "limit/override.h"

#include "limit/rate_text.h"

namespace ratelimit {

namespace {

std::string_view rate_misfit(const Override& override, Algorithm algorithm) noexcept
{
    if (algorithm == Algorithm::concurrency) {
        return "the zone counts requests at one time, expected \"concurrency\" instead of \"rate\"";
    }
    if (algorithm == Algorithm::sliding_window_log && override.rate.quota > max_logged_quota) {
        return "invalid \"rate\", expected at most 10000000 requests for sliding_window_log";
    }
    if (!override.burst) {
        return {};
    }
    if (!keeps_arrival_time(algorithm)) {
        return "invalid \"burst\", which only token_bucket, leaky_bucket and gcra have";
    }
    if (algorithm == Algorithm::token_bucket && *override.burst == 0) {
        return "invalid \"burst\", expected a bucket that holds at least one request";
    }
    const Policy policy{ algorithm, override.rate, override.burst, {} };
    return policy.burst_fits()
        ? std::string_view{}
        : "invalid \"burst\", expected one that refills at this rate within 142 years";
}

}  // namespace

std::string_view misfit(const Override& override, Algorithm algorithm) noexcept
{
    switch (override.kind) {
    case Override::Kind::rate:
        return rate_misfit(override, algorithm);
    case Override::Kind::concurrency:
        return algorithm == Algorithm::concurrency
            ? std::string_view{}
            : "the zone counts requests of a rate, expected \"rate\" instead of \"concurrency\"";
    default:
        return {};
    }
}

void apply(const Override& override, Policy& policy) noexcept
{
    using Kind = Override::Kind;
    if (!misfit(override, policy.algorithm).empty()) {
        return;
    }
    if (override.kind == Kind::concurrency) {
        policy.rate.quota = override.rate.quota;
    } else if (override.kind == Kind::rate) {
        policy.rate = override.rate;
        if (override.burst) {
            policy.burst = override.burst;
        }
    }
}

}  // namespace ratelimit
