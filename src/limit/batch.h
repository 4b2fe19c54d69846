#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <cstdint>

namespace ratelimit {

/// One limit's answer to several requests of one cost that were decided at one time, as if they had
/// come one after another.
struct BatchAnswer {
    std::int64_t taken = 0;      // so many, the first ones, were counted
    bool admits_next = false;    // another one would have been let in, as far as this limit goes
    std::int64_t remaining = 0;  // after those, as are the following
    microseconds reset{ 0 };
    std::optional<microseconds> retry_after{ microseconds{ 0 } };  // of one that it refuses
    /// What tells the reset of those before the last, if any was counted: for
    /// sliding_window_counter the count of the current window; for the algorithms that keep an
    /// arrival time, the part of the debt that is below one microsecond, in 1/quota us.
    std::int64_t detail = 0;
    microseconds reset_before{ 0 };  // before any of them was counted, if any was

    friend bool operator==(const BatchAnswer&, const BatchAnswer&) = default;
};

/// What the answer to a batch says after all but the last `units` that it took: requests times
/// cost, less than all of them. Granted.
LimitState state_before(
    const BatchAnswer& answer, const Policy& policy, std::int64_t units) noexcept;

/// What a batch's request of this index, from 0, would have been told alone in its turn.
LimitState state_in_batch(
    const BatchAnswer& answer, const Policy& policy, std::int64_t cost,
    std::int64_t index) noexcept;

/// What a batch's request of this index, which was counted, would be told if it had not been.
LimitState state_without(
    const BatchAnswer& answer, const Policy& policy, std::int64_t cost,
    std::int64_t index) noexcept;

/// A request's state as if its `cost`, which it took, had not been: as far as the state tells,
/// which is of the reset only for the algorithms that keep an arrival time.
void put_back(LimitState& state, const Policy& policy, std::int64_t cost) noexcept;

/// From the batch's time on, for how long what it took ahead may be spent: in its own fixed window;
/// a second where windows slide, which is by how much more time can be met by what passes.
microseconds life_ahead(const BatchAnswer& answer, Algorithm algorithm) noexcept;

}  // namespace ratelimit
