#pragma once

#include "nginx/clock.h"
#include "zone/node_clock.h"

namespace ratelimit {

inline constexpr NodeClock node_clock{ nginx::monotonic_time, nginx::local_time };

}  // namespace ratelimit
