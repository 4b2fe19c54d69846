#pragma once

#include "limit/rate.h"

#include <cstdint>
#include <optional>

namespace ratelimit {

/// Whether a key is refused for a time because it was refused once (block=).
enum class Block : std::uint8_t {
    none,
    lasts,   // began with an earlier refusal
    begins,  // with this refusal
};

/// The decision of one limit on one request.
struct Verdict {
    bool granted = false;
    std::int64_t remaining = 0;  // requests of cost 1 that would pass now
    microseconds reset{ 0 };     // time until the whole limit is available
    /// Exact time until a request of this cost would pass if there were no others. Zero if it was
    /// granted; empty if it never would pass (a cost above the limit).
    std::optional<microseconds> retry_after{ microseconds{ 0 } };
    Block block = Block::none;  // while it lasts, nothing remains, and reset and retry are its rest

    friend bool operator==(const Verdict&, const Verdict&) = default;
};

/// The verdict on a request whose key is blocked. A cost of 0 always passes.
constexpr Verdict blocked(std::int64_t cost, microseconds rest) noexcept
{
    const bool granted = cost == 0;
    return { granted, 0, rest, granted ? microseconds{ 0 } : rest, Block::lasts };
}

/// The verdict on a request whose refusal begins a block.
constexpr Verdict begun_block(microseconds block) noexcept
{
    return { false, 0, block, block, Block::begins };
}

}  // namespace ratelimit
