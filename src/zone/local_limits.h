#pragma once

#include "base/clock_steps.h"
#include "zone/applied_limit.h"

#include <span>

namespace ratelimit {

/// Decides the limits whose source is Source::local, in this node's memory. The request is counted
/// in all of them or in none, as in lua/several.lua. `now`: of this node's clock. `take`: false if
/// a limit that is decided elsewhere refuses; then nothing is counted.
void decide_local_limits(
    std::span<AppliedLimit> limits, const ClockReading& now, bool take) noexcept;

}  // namespace ratelimit
