#pragma once

#include "limit/rate.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace ratelimit {

/// The decision of one limit on one request.
struct Verdict {
    bool granted = false;
    std::int64_t remaining = 0;  // requests of cost 1 that would pass now
    microseconds reset{ 0 };     // time until the whole limit is available
    /// Exact time until a request of this cost would pass if there were no others. Zero if it was
    /// granted; empty if it never would pass (a cost above the limit).
    std::optional<microseconds> retry_after{ microseconds{ 0 } };
    /// What is left of the key's block (block=); 0: it is not blocked.
    microseconds blocked{ 0 };
    bool used_up = false;  // of a blocked key: nothing remains by its counts either
    /// The time until the limit itself ends, as an override may; clients see no longer time.
    microseconds ends = microseconds::max();

    friend bool operator==(const Verdict&, const Verdict&) = default;
};

/// Adds a block of this length, unless it is 0, to a verdict by the counts alone. Nothing remains,
/// and reset and retry time are at least the rest of the block.
constexpr void apply_block(Verdict& state, microseconds rest) noexcept
{
    if (rest.count() <= 0) {
        return;
    }
    state.blocked = rest;
    state.used_up = state.remaining == 0;
    state.remaining = 0;
    state.reset = std::max(state.reset, rest);
    if (!state.granted && state.retry_after) {
        state.retry_after = std::max(*state.retry_after, rest);
    }
}

/// The verdict on a request whose key is blocked and has no counts. A cost of 0 always passes.
constexpr Verdict blocked(std::int64_t cost, microseconds rest) noexcept
{
    Verdict state;
    state.granted = cost == 0;
    apply_block(state, rest);
    state.used_up = false;  // not known
    return state;
}

}  // namespace ratelimit
