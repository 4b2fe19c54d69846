#pragma once

#include "base/time_zone.h"
#include "limit/algorithm.h"

#include <cstdint>
#include <optional>

namespace ratelimit {

/// How far ahead of now an arrival time may be: 142 years. Up to there, it is exact to the
/// microsecond as a double.
inline constexpr microseconds longest_refill{ std::int64_t{ 1 } << 52U };

/// Units that are not released expire at most hold/8 late.
inline constexpr std::int64_t buckets_per_hold = 8;

/// What one limit allows: all that a decision depends on, except key, cost and time.
struct Policy {
    Algorithm algorithm = Algorithm::sliding_window_counter;
    Rate rate;                                // concurrency: the requests at one time, and `hold`
    std::optional<std::int64_t> burst{};      // requests; empty: the algorithm's default
    std::optional<microseconds> precision{};  // of one bucket; empty: the default
    microseconds block{ 0 };                  // how long a refused key stays refused; 0: no longer
    /// The number of the record in which an override of the rate counts and blocks, apart from the
    /// limit's own policy: from 2^29 to 2^30 - 1. With calendar periods it is only for blocks: the
    /// counts are those of the period. 0: there is no such override.
    std::uint32_t override_record = 0;
    /// How many requests must remain after this one, for those with a smaller reserve.
    std::int64_t reserve = 0;

    /// Of a zone with calendar=, whose rate is for calendar periods; null: it has none.
    const TimeZone* calendar = nullptr;
    std::uint8_t start_day = 1;  // of the month, on which a month of the calendar begins
    /// When the current period begins, since the epoch; 0: there is none. Set by enter_period, as
    /// are its length, rate.window, and its number, which the records of a key have.
    microseconds begin{ 0 };
    std::uint32_t period_number = 0;

    /// The most requests that can ever remain, for requests without a reserve: the quota for the
    /// windows, the capacity for token_bucket, 1 + burst for gcra and leaky_bucket; at most what is
    /// refilled in longest_refill.
    std::int64_t whole() const noexcept;

    /// The most that can ever remain for requests with this reserve; 0: nothing passes.
    std::int64_t limit() const noexcept { return std::max(whole() - reserve, std::int64_t{ 0 }); }

    /// Whether the burst is refilled within longest_refill.
    bool burst_fits() const noexcept;

    /// Whether quota and burst are in the range that the algorithm supports.
    bool possible() const noexcept;

    /// The width of one bucket of sliding_window_buckets: window/60 unless set, at least 1 s, at
    /// most the window. Of concurrency: window/8.
    microseconds bucket_width() const noexcept;

    /// How long a logged request counts, or a bucket from its start: the window (of concurrency:
    /// `hold`), and the width of a bucket, so that a request at its end counts as long.
    microseconds counted_for() const noexcept
    {
        const bool in_buckets = counts_at_one_time(algorithm) || traits_of(algorithm).precision;
        return in_buckets ? rate.window + bucket_width() : rate.window;
    }

    /// How long units of a key count at the most: a bucket that was full drains, the windows that
    /// count them pass.
    microseconds counted_at_most() const noexcept;

    /// Which of a key's records counts by this policy. Each override of a rate has one of its own
    /// (override_record), so that nothing of it outlasts it. With a variable rate, a window
    /// algorithm has one for each length of window, because the counts of one length cannot be
    /// converted exactly to another: its number is the length in seconds. With calendar= each
    /// period has one (period_number). Otherwise 0. Less than 2^30.
    std::uint32_t record(bool variable_rate) const noexcept;

    /// The time at which a request counts: in the period, if that has ended meanwhile.
    microseconds within_period(microseconds now) const noexcept
    {
        return begin.count() == 0 ? now
                                  : std::clamp(now, begin, begin + rate.window - microseconds{ 1 });
    }

    friend bool operator==(const Policy&, const Policy&) = default;
};

/// The rest of a stored block under this policy: it never lasts longer than `block` from now, also
/// if the clock ran backwards or another configuration began it.
constexpr microseconds rest_of_block(microseconds stored, const Policy& policy) noexcept
{
    return stored < policy.block ? stored : policy.block;
}

}  // namespace ratelimit
