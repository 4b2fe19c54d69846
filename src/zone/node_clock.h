#pragma once

#include "base/clock_steps.h"
#include "zone/zone.h"

namespace ratelimit {

/// This node's clocks. Tests replace them.
struct NodeClock {
    microseconds (*monotonic)() noexcept;  // the same for all processes of this machine
    microseconds (*since_epoch)() noexcept;

    ClockReading read() const noexcept
    {
        const microseconds called = monotonic();
        const microseconds shown = since_epoch();
        return { called, shown, monotonic() };
    }

    /// The clock by which this node's memory counts: monotonic for units that requests hold, else
    /// since the epoch.
    microseconds in_memory(const Policy& policy) const noexcept
    {
        return counts_at_one_time(policy.algorithm) ? monotonic() : since_epoch();
    }
    static microseconds in_memory(const Policy& policy, const ClockReading& now) noexcept
    {
        return counts_at_one_time(policy.algorithm) ? now.now : now.since_epoch;
    }

    /// The clock of a zone's remembered refusals and leases: since the epoch if this node's clock
    /// decides, else monotonic.
    microseconds time_of(const Zone& zone) const noexcept
    {
        return zone.clock == Clock::local ? since_epoch() : monotonic();
    }
};

}  // namespace ratelimit
