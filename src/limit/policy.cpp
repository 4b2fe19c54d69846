#include "limit/policy.h"

#include "limit/refill_time.h"

#include <algorithm>

namespace ratelimit {

namespace {

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

std::optional<Algorithm> algorithm_named(std::string_view name) noexcept
{
    for (std::size_t code = 0; code < algorithm_count; ++code) {
        const auto algorithm = static_cast<Algorithm>(code);
        if (name_of(algorithm) == name && !counts_at_one_time(algorithm)) {
            return algorithm;
        }
    }
    return std::nullopt;
}

std::int64_t Policy::whole() const noexcept
{
    switch (algorithm) {
    case Algorithm::token_bucket:
        return capped(burst.value_or(rate.quota), rate);
    case Algorithm::leaky_bucket:
    case Algorithm::gcra:
        return capped(1 + burst.value_or(0), rate);
    case Algorithm::fixed_window:
    case Algorithm::sliding_window_counter:
    case Algorithm::sliding_window_log:
    case Algorithm::sliding_window_buckets:
    case Algorithm::concurrency:
        break;
    }
    return rate.quota;
}

microseconds Policy::counted_at_most() const noexcept
{
    return keeps_arrival_time(algorithm) ? std::min(refill_time_ceil(whole(), rate), longest_refill)
                                         : 2 * rate.window;
}

std::uint32_t Policy::record(bool variable_rate) const noexcept
{
    if (begin.count() != 0) {
        return period_number;
    }
    if (override_record != 0 || !variable_rate || keeps_arrival_time(algorithm)) {
        return override_record;
    }
    return static_cast<std::uint32_t>(rate.window / std::chrono::seconds{ 1 });
}

bool Policy::burst_fits() const noexcept
{
    return whole() >= burst.value_or(0);
}

bool Policy::possible() const noexcept
{
    return rate.quota <= traits_of(algorithm).most_quota && whole() > 0 && burst_fits();
}

microseconds Policy::bucket_width() const noexcept
{
    if (counts_at_one_time(algorithm)) {
        return rate.window / buckets_per_hold;
    }
    constexpr microseconds least = std::chrono::seconds{ 1 };
    return std::clamp(precision.value_or(rate.window / 60), least, std::max(least, rate.window));
}

}  // namespace ratelimit
