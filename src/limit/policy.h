#pragma once

#include "limit/rate.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// How requests are counted. The values are the scripts' algorithm codes: they never change.
enum class Algorithm : std::uint8_t {
    fixed_window = 0,
    sliding_window_counter = 1,
    sliding_window_log = 2,
    sliding_window_buckets = 3,
    token_bucket = 4,
    leaky_bucket = 5,
    gcra = 6,
};

inline constexpr std::size_t algorithm_count = 7;

/// Every request of sliding_window_log takes at least seven bytes, which Redis moves now and then.
inline constexpr std::int64_t max_logged_quota = 10'000'000;

/// 142 years: an arrival time so far ahead of now is still exact to the microsecond as a double.
inline constexpr microseconds longest_refill{ std::int64_t{ 1 } << 52U };

std::string_view name_of(Algorithm algorithm) noexcept;
std::optional<Algorithm> algorithm_named(std::string_view name) noexcept;

/// The algorithms that keep one theoretical arrival time: token_bucket, leaky_bucket, gcra.
constexpr bool keeps_arrival_time(Algorithm algorithm) noexcept
{
    return algorithm == Algorithm::token_bucket || algorithm == Algorithm::leaky_bucket
        || algorithm == Algorithm::gcra;
}

/// What one limit allows: all that a decision depends on but key, cost and time.
struct Policy {
    Algorithm algorithm = Algorithm::sliding_window_counter;
    Rate rate;
    std::optional<std::int64_t> burst;      // requests; empty: the algorithm's default
    std::optional<microseconds> precision;  // of one bucket; empty: the default

    /// The most requests that can ever remain: the quota for the windows, the capacity for
    /// token_bucket, 1 + burst for gcra and leaky_bucket; at most what longest_refill makes up for.
    std::int64_t limit() const noexcept;

    /// Whether the burst is one that the rate makes up for within longest_refill.
    bool burst_fits() const noexcept;

    /// Whether a limit may have this burst and so large a quota.
    bool possible() const noexcept;

    /// The time in which limit() requests become available: `w` of the RateLimit-Policy header.
    microseconds limit_window() const noexcept;

    /// The width of one bucket of sliding_window_buckets: window/60 unless set, at least 1 s, at
    /// most the window.
    microseconds bucket_width() const noexcept;

    friend bool operator==(const Policy&, const Policy&) = default;
};

}  // namespace ratelimit
