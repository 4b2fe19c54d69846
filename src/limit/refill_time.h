#pragma once

#include "limit/rate.h"
#include "limit/wide.h"

namespace ratelimit {

/// How long a rate takes to refill this number of requests: requests * window / quota, rounded up
/// to a microsecond. microseconds::max() if the result is larger or the quota is 0.
constexpr microseconds refill_time_ceil(std::int64_t requests, const Rate& rate) noexcept
{
    return rate.quota == 0
        ? microseconds::max()
        : microseconds{ rounded_up(Wide{ requests } * rate.window.count(), rate.quota) };
}

/// The same, rounded down.
constexpr microseconds refill_time_floor(std::int64_t requests, const Rate& rate) noexcept
{
    const Wide units = Wide{ requests } * rate.window.count();  // of 1/quota us
    return rate.quota == 0 ? microseconds::max()
                           : microseconds{ rounded_up(units - (rate.quota - 1), rate.quota) };
}

}  // namespace ratelimit
