#pragma once

#include "zone/applied_limit.h"

namespace ratelimit {

/// Changes the cost of a request that a limit counted to `cost`, where it is counted: Redis or this
/// node's memory. Less is refunded; more is charged, even if it exceeds the limit. `now`: since the
/// epoch, by this node's clock.
void settle_cost(const AppliedLimit& limit, std::int64_t cost, microseconds now) noexcept;

}  // namespace ratelimit
