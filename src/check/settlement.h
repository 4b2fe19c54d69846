#pragma once

#include "check/remote_limit.h"
#include "limit/refund.h"
#include "redis/client.h"

namespace ratelimit {

// What happens in Redis to a cost after it was counted. The calls of one turn share commands as
// checks do. No caller waits for a reply: `limit` may be destroyed after the call. A call that
// Redis surely did not execute is tried again for ten seconds: it could not be written, or the
// error says so. One that Redis may have executed is not. What is given up is counted
// (Client::count_failed). `now`: by this node's clock.

/// Subtracts what a check counted.
void refund(
    redis::Client& client, const RemoteLimit& limit, const Refund& refund,
    microseconds now) noexcept;

/// Counts more, even if it exceeds the limit.
void charge(
    redis::Client& client, const RemoteLimit& limit, std::int64_t cost, microseconds now) noexcept;

}  // namespace ratelimit
