#pragma once

#include "limit/delay.h"
#include "limit/fail_mode.h"
#include "zone/applied_limit.h"

#include <cstddef>
#include <optional>
#include <span>

namespace ratelimit {

/// The result for a request: $ratelimit_status.
enum class Result : std::uint8_t {
    none,
    passed,
    delayed,
    rejected,
    delayed_dry_run,
    rejected_dry_run,
    failed_open,
    failed_closed,
};

/// The combined decision of several limits on one request.
struct Outcome {
    bool refused = false;
    microseconds wait{ 0 };  // how long a passed request is delayed
    std::optional<microseconds> retry_after{ microseconds{ 0 } };  // as in Verdict
    /// Index of the limit that decided: the refusing one with the longest retry time; else the one
    /// with the longest delay; else the one with the least left.
    std::size_t decided_by = 0;
    /// Index of the limit with the least left, as a share of its Policy::limit(). Shadow limits are
    /// considered only if there are no others.
    std::size_t least_left = 0;
};

/// The decision of all decided limits together. Shadow limits do not change it.
enum class Decided : std::uint8_t { none, admit, delay, refuse };

/// The result for a request, by the table of ratelimit_fail_mode in doc/reference.md. `undecided`:
/// an enforced limit could not be decided.
Result result_of(Decided decided, bool undecided, FailMode mode, bool dry_run) noexcept;

/// Combines the decided limits, of which there must be at least one.
Outcome outcome_of(std::span<const AppliedLimit> limits) noexcept;

/// How long a request that the limit admitted is delayed.
inline microseconds delay_of(const AppliedLimit& limit) noexcept
{
    return delay_of(limit.policy, limit.state, limit.undelayed);
}

}  // namespace ratelimit
