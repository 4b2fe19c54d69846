#include "limit/policy.h"

#include <algorithm>
#include <array>

namespace ratelimit {

namespace {

/// Of algorithm=, by code. `concurrency` follows them.
constexpr std::array<std::string_view, algorithm_count - 1> names = {
    "fixed_window",
    "sliding_window_counter",
    "sliding_window_log",
    "sliding_window_buckets",
    "token_bucket",
    "leaky_bucket",
    "gcra",
};

/// `requests`, but at most as many as the rate refills in longest_refill, and at least 1.
std::int64_t capped(std::int64_t requests, const Rate& rate) noexcept
{
    const auto quota = static_cast<double>(rate.quota);
    const auto window = static_cast<double>(rate.window.count());
    const double most = static_cast<double>(longest_refill.count()) * quota;
    if (rate.quota == 0 || static_cast<double>(requests) * window <= most) {
        return requests;
    }
    return std::max(std::int64_t{ 1 }, static_cast<std::int64_t>(most / window));
}

}  // namespace

std::string_view name_of(Algorithm algorithm) noexcept
{
    if (algorithm == Algorithm::concurrency) {
        return "concurrency";
    }
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
        return capped(burst.value_or(rate.quota), rate);
    case Algorithm::leaky_bucket:
    case Algorithm::gcra:
        return capped(1 + burst.value_or(0), rate);
    default:
        return rate.quota;
    }
}

bool Policy::burst_fits() const noexcept
{
    return limit() >= burst.value_or(0);
}

bool Policy::possible() const noexcept
{
    if (algorithm == Algorithm::sliding_window_log) {
        return rate.quota <= max_logged_quota;
    }
    return limit() > 0 && burst_fits();
}

microseconds Policy::bucket_width() const noexcept
{
    if (algorithm == Algorithm::concurrency) {
        return rate.window / buckets_per_hold;
    }
    constexpr microseconds least = std::chrono::seconds{ 1 };
    return std::clamp(precision.value_or(rate.window / 60), least, std::max(least, rate.window));
}

}  // namespace ratelimit
