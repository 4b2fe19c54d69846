#pragma once

#include "limit/run_reply.h"
#include "zone/applied_limit.h"
#include "zone/node_clock.h"

namespace ratelimit {

// How this node's memory decides limits that are counted in Redis: by remembered refusals (the
// denial cache), and by tokens taken from Redis in advance (leases).

/// As spend_lease, where a lease may pay.
void spend_tokens(AppliedLimit& limit, microseconds now) noexcept;

/// Decides the limit if a lease has tokens for its cost. If not, sets its `lease_wanted`.
inline void spend_lease(AppliedLimit& limit, microseconds now) noexcept
{
    // A token of a lease could not be refunded once the lease has expired.
    if (limit.zone->lease > 0 && limit.cost > 0 && !limit.settled_later) {
        spend_tokens(limit, now);
    }
}

/// Decides the limit if a remembered refusal says that Redis would refuse it.
void recall_refusal(AppliedLimit& limit) noexcept;

/// Remembers the decision of Redis if that was a refusal.
void remember_refusal(const AppliedLimit& limit, const NodeClock& clock) noexcept;

/// Follows this node's clock if that has decided the limit and a block may need to know.
void note_clock(const AppliedLimit& limit, const NodeClock& clock) noexcept;

/// Of a request that is refused: if the counts of this limit refuse it, blocks the limit's key, in
/// Redis or in the node's memory, whichever decided it.
void begin_block(AppliedLimit& limit, const NodeClock& clock) noexcept;

/// Keeps what Redis granted beyond the first `spent` requests of a run, as a lease.
void keep_lease(const AppliedLimit& limit, const RunReply& answer, std::int64_t spent) noexcept;

/// The request passes: if it spent a lease that should be renewed, begins that. No request waits
/// for it.
void renew_lease(const AppliedLimit& limit, const NodeClock& clock) noexcept;

/// Returns the tokens that the request took from a lease, and adjusts the limit's state. False: it
/// took none.
bool refund_lease(AppliedLimit& limit) noexcept;

/// Removes the remembered refusals of the key if they may be wrong. After a refund in Redis, a
/// request may pass sooner than remembered. After a request that passed, less is left than
/// remembered with the refusal of a larger cost or of another policy. Does nothing in zones where
/// neither can happen; the others remember refusals only briefly (Zone::remembered).
void forget_refusals(const AppliedLimit& limit) noexcept;

}  // namespace ratelimit
