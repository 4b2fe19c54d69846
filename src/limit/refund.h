#pragma once

#include "limit/policy.h"

#include <algorithm>
#include <cstdint>

namespace ratelimit {

/// A counted cost that a refund subtracts.
struct Refund {
    std::int64_t cost = 0;
    microseconds taken_at{ 0 };  // time of the check, by the clock that decided
    microseconds reset{ 0 };     // from the verdict of the check
};

/// The count of a request that cost this much in the end, of which `counted` was counted: each unit
/// of a log is an entry, and more entries than the quota refuse no more requests.
inline std::int64_t settled_cost(
    const Policy& policy, std::int64_t counted, std::int64_t cost) noexcept
{
    return traits_of(policy.algorithm).logs ? std::min(cost, counted + policy.whole()) : cost;
}

}  // namespace ratelimit
