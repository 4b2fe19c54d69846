#pragma once

#include "zone/applied_limit.h"

#include <span>

namespace ratelimit {

/// Decides in this node's memory those of a request's limits whose source is Source::local: the
/// request is counted in all of them or in none, as lua/several.lua does. `now`: since the epoch.
/// `take`: false if a limit that is decided elsewhere refuses.
void decide_local_limits(std::span<AppliedLimit> limits, microseconds now, bool take) noexcept;

}  // namespace ratelimit
