#pragma once

#include "limit/policy.h"
#include "limit/verdict.h"

#include <cstdint>

namespace ratelimit {

/// The reply of one limit to a run: requests of one cost that were decided together, as if they had
/// arrived one after another. What remains is within the limit.
struct RunReply {
    std::int64_t taken = 0;      // requests that were counted: the first ones of the run
    bool admits_next = false;    // this limit would admit the next request of the run
    bool spared = false;         // no refusal begins a block of the key now
    microseconds blocked{ 0 };   // what is left of the key's block; the rest is without it
    std::int64_t remaining = 0;  // after the counted requests, as are the following two
    microseconds reset{ 0 };
    std::optional<microseconds> retry_after{ microseconds{ 0 } };  // of a request it refuses
    /// If any request was counted: what is needed to compute the reset after each but the last of
    /// them. For sliding_window_counter, the count of the current window. For the algorithms that
    /// keep an arrival time, the part of the debt below one microsecond, in 1/quota us.
    std::int64_t detail = 0;
    microseconds reset_before{ 0 };  // if any request was counted: the reset before that

    friend bool operator==(const RunReply&, const RunReply&) = default;
};

/// The granted verdict before the last `units` (requests times cost) of the run were counted.
/// `units` must be less than all that the run counted: for all, the reset is not valid.
Verdict state_before(const RunReply& reply, const Policy& policy, std::int64_t units) noexcept;

/// The verdict on the request of this index in the run, from 0, as if it had been decided alone.
Verdict state_in_run(
    const RunReply& reply, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept;

/// The granted verdict before the counted request of this index was counted: that which remains
/// when the request is refunded.
Verdict state_without(
    const RunReply& reply, const Policy& policy, std::int64_t cost, std::int64_t index) noexcept;

/// Adjusts the verdict on a request whose `cost` is refunded. The reset is adjusted if the whole
/// limit remains, or if the algorithm keeps an arrival time: for others it cannot be computed.
void refund_verdict(Verdict& state, const Policy& policy, std::int64_t cost) noexcept;

/// How long after the run the tokens of a lease may be spent: to the end of the window for
/// fixed_window, otherwise a second. So requests may pass up to a second after they were counted.
microseconds lease_life(const RunReply& reply, Algorithm algorithm) noexcept;

}  // namespace ratelimit
