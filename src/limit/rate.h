#pragma once

#include <chrono>
#include <cstdint>

namespace ratelimit {

using std::chrono::microseconds;

/// The largest quota.
inline constexpr std::int64_t max_quota = 1'000'000'000;

/// The period of a quota in a zone with calendar=; none: a window of fixed length.
enum class Period : std::uint8_t { none, day, week, month, year };

/// A quota and the window it is for: 100 requests in 60 s. The emission interval, window / quota,
/// need not be a whole number of microseconds, so nothing here or in the scripts divides first.
struct Rate {
    std::int64_t quota = 0;    // requests per window, at least 1
    microseconds window{ 0 };  // at least 1 s; of a period the length of the current one
    Period period = Period::none;

    friend bool operator==(const Rate&, const Rate&) = default;
};

}  // namespace ratelimit
