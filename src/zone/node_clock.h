#pragma once

#include "zone/zone.h"

namespace ratelimit {

/// This node's clocks. A test has its own.
struct NodeClock {
    microseconds (*monotonic)() noexcept;  // the same for all processes of this machine
    microseconds (*since_epoch)() noexcept;

    /// What a zone's refusals and leases are timed by: the clock of its decisions, if that is this
    /// node's.
    microseconds time_of(const Zone& zone) const noexcept
    {
        return zone.clock == Clock::local ? since_epoch() : monotonic();
    }
};

}  // namespace ratelimit
