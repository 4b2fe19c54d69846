#pragma once

#include "check/split_check.h"

namespace ratelimit {

/// Gives back what a check took at this time, when it is `now` by this node's clock. It goes by
/// itself: the request need not wait, nor live, for the reply. What is lost stays counted.
void refund(const RemoteCheck& check, microseconds taken_at, microseconds now) noexcept;

}  // namespace ratelimit
