#include "limit/policy.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ratelimit {

namespace {

constexpr std::array<std::string_view, algorithm_count> names = {
    "fixed_window",
    "sliding_window_counter",
    "sliding_window_log",
    "sliding_window_buckets",
    "token_bucket",
    "leaky_bucket",
    "gcra",
};

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept
{
    return names[static_cast<std::size_t>(algorithm)];
}

std::optional<Algorithm> algorithm_named(std::string_view name) noexcept
{
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
        return std::nullopt;
    }
    return static_cast<Algorithm>(found - names.begin());
}

std::int64_t Policy::limit() const noexcept
{
    switch (algorithm) {
    case Algorithm::token_bucket:
        return burst.value_or(rate.quota);
    case Algorithm::leaky_bucket:
    case Algorithm::gcra:
        return 1 + burst.value_or(0);
    default:
        return rate.quota;
    }
}

microseconds Policy::limit_window() const noexcept
{
    if (!keeps_arrival_time(algorithm)) {
        return rate.window;
    }
    // In floating point: limit * window does not fit 64 bits for the largest of both.
    const auto windows = static_cast<double>(limit()) / static_cast<double>(rate.quota);
    return microseconds{ std::llround(windows * static_cast<double>(rate.window.count())) };
}

microseconds Policy::bucket_width() const noexcept
{
    constexpr microseconds least = std::chrono::seconds{ 1 };
    return std::clamp(precision.value_or(rate.window / 60), least, std::max(least, rate.window));
}

}  // namespace ratelimit
