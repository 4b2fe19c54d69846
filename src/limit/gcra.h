#pragma once

#include "limit/decision.h"
#include "limit/policy.h"
#include "limit/wide.h"

#include <cstdint>

namespace ratelimit {

/// A theoretical arrival time, all that token_bucket, leaky_bucket and gcra keep of a key. No state
/// is one in the past, such as the epoch.
struct ArrivalTime {
    std::int64_t whole = 0;   // us since the epoch
    std::int64_t rest = 0;    // in 1/quota us, from 0 to quota - 1
    std::int64_t latest = 0;  // time of the latest request that was counted, us since the epoch

    friend bool operator==(const ArrivalTime&, const ArrivalTime&) = default;
};

/// One check of a limit in this process's own memory, in two steps, so that several limits can be
/// decided before any of them counts. It answers as lua/gcra.lua does, but in exact arithmetic.
///
/// The generic cell rate algorithm (ITU-T I.371), in units of 1/quota us, so that nothing is
/// rounded: `debt` is (arrival time - now) * quota, a request of cost c adds c * window to it, up
/// to capacity * window, the capacity being Policy::limit(). A debt that other policies made above
/// this capacity stays whole.
///
/// A clock up to a window behind the latest count finds the arrival time as it is; one further
/// behind ran backwards, and the state steps back with it.
class GcraCheck {
public:
    /// Looks, and changes nothing. `now` is a time since the epoch; a cost of 0 always passes.
    GcraCheck(
        ArrivalTime& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept;

    /// Whether a request of this cost passes.
    bool granted() const noexcept { return granted_; }

    /// Counts the request if `take`, and if it is granted and costs anything; the answer after
    /// that. To be called once.
    Verdict commit(bool take) noexcept;

    /// After commit: how long from `now` the state matters; zero: it equals an empty state.
    microseconds life() const noexcept;

private:
    void write() noexcept;

    ArrivalTime& state_;
    std::int64_t now_;
    std::int64_t quota_;
    std::int64_t window_;
    std::int64_t capacity_;
    std::int64_t cost_;
    Wide debt_ = 0;
    std::int64_t latest_;  // of this or an earlier request
    bool moved_ = false;   // the state stepped back with the clock
    bool granted_ = false;
};

}  // namespace ratelimit
