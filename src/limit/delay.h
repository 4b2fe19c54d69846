#pragma once

#include "limit/policy.h"
#include "limit/refill_time.h"
#include "limit/verdict.h"

#include <algorithm>
#include <optional>

namespace ratelimit {

/// How long a request that leaky_bucket admitted is delayed, by the rule of limit_req: the excess
/// is what the bucket holds without this request. `undelayed`: how many requests above the rate
/// pass without delay; empty: all.
inline microseconds delay_of(
    const Policy& policy, const Verdict& verdict, std::optional<std::int64_t> undelayed) noexcept
{
    if (!traits_of(policy.algorithm).delays || !verdict.granted || !undelayed) {
        return microseconds{ 0 };
    }
    const microseconds at_once = refill_time_ceil(1 + *undelayed, policy.rate);
    return std::max(verdict.reset - at_once, microseconds{ 0 });
}

}  // namespace ratelimit
