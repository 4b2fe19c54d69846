#pragma once

#include "check/remote_limit.h"

namespace ratelimit {

/// What a check took in Redis, and is to be returned.
struct Refund {
    std::int64_t cost = 0;
    microseconds taken_at{ 0 };  // by the clock that decided
    microseconds reset{ 0 };     // as the check's reply said
};

/// Returns it, when it is `now` by this node's clock. The request need not wait, nor live, for the
/// reply. A refund that is lost leaves what was taken.
void refund(const RemoteLimit& limit, const Refund& refund, microseconds now) noexcept;

}  // namespace ratelimit
