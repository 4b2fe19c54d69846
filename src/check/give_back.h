#pragma once

#include "check/split_check.h"

namespace ratelimit {

/// Gives back what a check took at this time, when it is `now` by this node's clock, and puts it
/// back into the check's state as far as that tells. On its way by itself: the request need not
/// wait, nor live, for it. What gets lost on the way stays counted.
void give_back(const RemoteCheck& check, microseconds taken_at, microseconds now) noexcept;

}  // namespace ratelimit
