#pragma once

#include "check/receipt.h"
#include "limit/refund.h"
#include "redis/client.h"

namespace ratelimit {

// Changes to a cost after Redis counted it. The calls of one turn share commands as checks do. No
// caller waits for a reply, and the receipt is copied. A call that Redis surely did not execute is
// tried again for ten seconds: it could not be written, or the error says so. One that Redis may
// have executed is not. Calls that are given up are counted (Client::count_failed). `now`: by this
// node's clock. `ago`: how long ago the wrong count began; an exiting worker waits until a minute
// after that.
//
// No block begins because of units that stay counted although no request used them: the key is
// spared for as long as they count (Policy::counted_at_most), also if a refund is given up. That is
// a state, so it is stated until Redis answers.

/// Subtracts what a check of a refused request counted. Then lifts a block that began meanwhile: it
/// may have begun only because of that.
void take_back(
    redis::Client& client, const Receipt& receipt, const Refund& refund, microseconds now,
    redis::milliseconds ago = redis::milliseconds{ 0 }) noexcept;

/// Redis may have counted, or may still count, a check that is no longer awaited: no block begins
/// or stays because of it.
void spare(
    redis::Client& client, const Receipt& receipt,
    redis::milliseconds ago = redis::milliseconds{ 0 }) noexcept;

/// Blocks the key from the time of its reply plus `later`. Calls for the same reply, in turn, send
/// one message.
void begin_block(
    redis::Client& client, const Receipt& receipt, microseconds later, microseconds now) noexcept;

/// Changes the units of a check to `cost`, which is a settled_cost: less is refunded, more is
/// charged, even if it exceeds the limit.
void settle(
    redis::Client& client, const Receipt& receipt, const Refund& counted, std::int64_t cost,
    microseconds now, redis::milliseconds ago = redis::milliseconds{ 0 }) noexcept;

}  // namespace ratelimit
