#pragma once

#include "limit/run_reply.h"
#include "zone/applied_limit.h"
#include "zone/node_clock.h"

namespace ratelimit {

/// What this node's memory says of limits that are counted in Redis: refusals that it remembers
/// (the denial cache), and tokens that it took in advance (leases).

/// Decides the limit if its cost can be paid by a lease; else notes in it how much is worth
/// leasing.
void spend_lease(AppliedLimit& limit, microseconds now) noexcept;

/// Decides the limit if Redis has refused its key, and would still do so.
void recall_refusal(AppliedLimit& limit) noexcept;

/// After Redis's decision: remembers a refusal.
void remember_refusal(const AppliedLimit& limit, const NodeClock& clock) noexcept;

/// Keeps what Redis has granted beyond the first `spent` requests of a run.
void keep_lease(const AppliedLimit& limit, const RunReply& answer, std::int64_t spent) noexcept;

/// Returns what the request took of a lease, also in the limit's state.
void refund_lease(AppliedLimit& limit) noexcept;

/// After a limit's cost was refunded in Redis: others may pass sooner than was remembered. And
/// after a request that passed: less is left than was remembered for requests of a larger cost or
/// another policy whose refusal is remembered. Only where a zone can have such requests, which are
/// remembered briefly for the same reason.
void forget_refusals(const AppliedLimit& limit) noexcept;

}  // namespace ratelimit
