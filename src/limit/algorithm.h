#pragma once

#include "limit/rate.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// How requests are counted. The values are the algorithm codes of the scripts.
enum class Algorithm : std::uint8_t {
    fixed_window = 0,
    sliding_window_counter = 1,
    sliding_window_log = 2,
    sliding_window_buckets = 3,
    token_bucket = 4,
    leaky_bucket = 5,
    gcra = 6,
    concurrency = 7,  // requests at one time: concurrency= instead of algorithm=
};

inline constexpr std::size_t algorithm_count = 8;

/// The largest quota of sliding_window_log, whose state is at least seven bytes for each request
/// and is rewritten as a whole from time to time.
inline constexpr std::int64_t max_logged_quota = 10'000'000;

/// The state of a key in the memory of this process.
enum class StateKind : std::uint8_t {
    arrival_time,   // one theoretical arrival time (limit/gcra.h)
    window_counts,  // of the current window and the previous one (limit/window_counts.h)
    timed_counts,   // counts with their times (limit/timed_counts.h)
};

/// All that the code knows of an algorithm, besides its check, commit and refund, which are in lua/
/// and in the file of its StateKind.
struct AlgorithmTraits {
    std::string_view name;
    StateKind state = StateKind::timed_counts;
    /// burst= is allowed, and this is the smallest one; empty: there is no burst.
    std::optional<std::int64_t> least_burst{};
    std::int64_t most_quota = max_quota;
    bool precision = false;    // precision= sets the width of its buckets
    bool delays = false;       // requests within the burst wait for their turn
    bool weighted = false;     // the previous window counts by the share that is still covered
    bool logs = false;         // each unit is an entry of the state
    bool at_one_time = false;  // limits the units that requests hold, not a rate
};

/// By code.
inline constexpr std::array<AlgorithmTraits, algorithm_count> all_algorithm_traits{ {
    { .name = "fixed_window", .state = StateKind::window_counts },
    { .name = "sliding_window_counter", .state = StateKind::window_counts, .weighted = true },
    { .name = "sliding_window_log", .most_quota = max_logged_quota, .logs = true },
    { .name = "sliding_window_buckets", .precision = true },
    { .name = "token_bucket", .state = StateKind::arrival_time, .least_burst = 1 },
    { .name = "leaky_bucket", .state = StateKind::arrival_time, .least_burst = 0, .delays = true },
    { .name = "gcra", .state = StateKind::arrival_time, .least_burst = 0 },
    { .name = "concurrency", .at_one_time = true },
} };
static_assert(
    std::ranges::none_of(all_algorithm_traits, &std::string_view::empty, &AlgorithmTraits::name),
    "each algorithm has its traits");

constexpr const AlgorithmTraits& traits_of(Algorithm algorithm) noexcept
{
    return all_algorithm_traits[static_cast<std::size_t>(algorithm)];
}

constexpr std::string_view name_of(Algorithm algorithm) noexcept
{
    return traits_of(algorithm).name;
}

/// By its name in algorithm=, where concurrency has none.
std::optional<Algorithm> algorithm_named(std::string_view name) noexcept;

/// The algorithms that keep one theoretical arrival time: token_bucket, leaky_bucket, gcra.
constexpr bool keeps_arrival_time(Algorithm algorithm) noexcept
{
    return traits_of(algorithm).state == StateKind::arrival_time;
}

constexpr bool burst_is_too_small(Algorithm algorithm, std::int64_t burst) noexcept
{
    return burst < traits_of(algorithm).least_burst.value_or(0);
}

/// Whether the limit is for requests at one time: concurrency=.
constexpr bool counts_at_one_time(Algorithm algorithm) noexcept
{
    return traits_of(algorithm).at_one_time;
}

}  // namespace ratelimit
