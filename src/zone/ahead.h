#pragma once

#include "zone/applied_limit.h"
#include "zone/node_clock.h"

#include <span>

namespace ratelimit {

/// Passes the request at once if in each limit that awaits Redis the last answer, less the units
/// without an answer, has room for it (ahead=). Redis then counts the request in all of them behind
/// it, also beyond the limit. False: no limit is decided, and Redis must decide.
bool pass_ahead(std::span<AppliedLimit> limits) noexcept;

/// Changes the cost of a request that passed ahead under this limit, which has charge=. Once.
void settle_ahead(const AppliedLimit& limit, std::int64_t cost) noexcept;

/// The request has ended.
void end_ahead(AppliedLimit& limit) noexcept;

/// Sends the unsent units that passed ahead under this limit, so that they are counted before a
/// check that is sent now.
void report_before_check(const AppliedLimit& limit) noexcept;

/// Keeps the answer of Redis to a check of this limit.
void note_answer(const AppliedLimit& limit, const NodeClock& clock) noexcept;

}  // namespace ratelimit
