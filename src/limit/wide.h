#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace ratelimit {

/// For the product of a time in microseconds and a number of requests: 366 days and 10^9 requests
/// are 75 bits. Standard C++ has no such integer; __extension__ keeps -Wpedantic quiet.
__extension__ using Wide = __int128;

/// The quotient, rounded up, at most the largest 64-bit number. The divisor must be at least 1.
constexpr std::int64_t rounded_up(Wide dividend, std::int64_t divisor) noexcept
{
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(std::min<Wide>((dividend + divisor - 1) / divisor, most));
}

}  // namespace ratelimit
