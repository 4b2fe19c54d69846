#pragma once

#include "zone/applied_limit.h"

#include <cstddef>
#include <optional>
#include <span>

namespace ratelimit {

/// What becomes of a request: $ratelimit_status.
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

/// What several limits make of one request together.
struct Outcome {
    bool refused = false;
    microseconds wait{ 0 };  // before a passed request goes on
    std::optional<microseconds> retry_after{ microseconds{ 0 } };  // as in Verdict
    /// Index of the limit that decided: refused, for the longest time; or delays longest; or has
    /// the least left.
    std::size_t decided_by = 0;
    /// Index of the limit with the least left by share of what it can ever hold. Shadow limits do
    /// not speak, unless there are no others.
    std::size_t least_left = 0;
};

/// Of the limits that are decided; there is at least one.
Outcome outcome_of(std::span<const AppliedLimit> limits) noexcept;

/// How long a request that leaky_bucket let in has to wait for its turn, as limit_req counts: its
/// excess is what the bucket holds besides it.
microseconds delay_of(const AppliedLimit& limit) noexcept;

}  // namespace ratelimit
