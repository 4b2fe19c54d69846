#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <cstdint>

namespace ratelimit {

/// One limit's reply to a run of requests of one cost: several that were decided at one time, as if
/// they had come one after another.
struct RunReply {
    std::int64_t taken = 0;      // requests that were counted: the first ones of the run
    bool admits_next = false;    // another one would have been let in, as far as this limit goes
    std::int64_t remaining = 0;  // after those, as are the following
    microseconds reset{ 0 };
    std::optional<microseconds> retry_after{ microseconds{ 0 } };  // of one that it refuses
    /// What tells the reset of those before the last, if any was counted: for
    /// sliding_window_counter the count of the current window; for the algorithms that keep an
    /// arrival time, the part of the debt that is below one microsecond, in 1/quota us.
    std::int64_t detail = 0;
    microseconds reset_before{ 0 };  // before any of them was counted, if any was

    friend bool operator==(const RunReply&, const RunReply&) = default;
};

/// The state after all but the last `units` that the run took: requests times cost, less than all
/// of them. Granted.
Verdict state_before(const RunReply& reply, const Policy& policy, std::int64_t units) noexcept;

/// The state that the run's request of this index, from 0, would have got alone in its turn.
Verdict state_in_run(
    const RunReply& reply, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept;

/// The state that the run's request of this index, which was counted, would get if it had not been.
Verdict state_without(
    const RunReply& reply, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept;

/// A request's state as if its `cost`, which it took, had not been: as far as the state tells,
/// which is of the reset only for the algorithms that keep an arrival time.
void refund_verdict(Verdict& state, const Policy& policy, std::int64_t cost) noexcept;

/// How long a lease may be spent from the run's time on: in its own fixed window; where windows
/// slide, a second, so that requests may pass up to a second after they were counted.
microseconds lease_life(const RunReply& reply, Algorithm algorithm) noexcept;

}  // namespace ratelimit
