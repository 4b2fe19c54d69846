#pragma once

#include "limit/policy.h"
#include "limit/refund.h"
#include "limit/verdict.h"
#include "limit/wide.h"

#include <cstdint>

namespace ratelimit {

/// The state of a key for token_bucket, leaky_bucket and gcra: the theoretical arrival time. One in
/// the past, such as the epoch, is the same as no state.
struct ArrivalTime {
    std::int64_t whole = 0;   // us since the epoch
    std::int64_t rest = 0;    // in 1/quota us, from 0 to quota - 1
    std::int64_t latest = 0;  // when a request was counted last, us since the epoch

    friend bool operator==(const ArrivalTime&, const ArrivalTime&) = default;
};

/// One check of a limit whose state is in this process's memory, in two steps (constructor and
/// commit), so that several limits can be checked before any of them counts. The verdicts are those
/// of lua/gcra.lua, but in exact arithmetic.
///
/// The generic cell rate algorithm (ITU-T I.371), in units of 1/quota us, so that nothing is
/// rounded. The debt is (arrival time - now) * quota. A request of cost c adds c * window to it,
/// and passes if the sum is at most capacity * window, where the capacity is Policy::limit(). If a
/// policy with a larger capacity has stored a larger debt, it is kept whole.
///
/// If the clock is up to a window behind the latest count, the arrival time is used as it is. If it
/// is further behind, it ran backwards, and the state is moved back with it.
class GcraCheck {
public:
    /// Changes nothing. `now`: since the epoch. A cost of 0 always passes.
    GcraCheck(
        ArrivalTime& state, const Policy& policy, microseconds now, std::int64_t cost) noexcept;

    /// Whether a request of this cost passes.
    bool granted() const noexcept { return granted_; }

    /// Counts the request if `take`, and if it is granted and its cost is not 0. Returns the
    /// verdict after that. Call once.
    Verdict commit(bool take) noexcept;

    /// Instead of commit: counts the cost even if it exceeds the capacity. The debt is at most what
    /// the rate refills in longest_refill.
    void charge() noexcept;

    /// After commit or charge: how long after `now` the state equals an empty one; zero: it does
    /// now.
    microseconds life() const noexcept;

private:
    void count(Wide units) noexcept;

    ArrivalTime& state_;
    std::int64_t now_;
    std::int64_t quota_;
    std::int64_t window_;
    std::int64_t capacity_;
    std::int64_t cost_;
    Wide debt_ = 0;
    std::int64_t latest_;  // when this or an earlier request was counted last
    bool moved_ = false;   // the state was moved back with the clock
    bool granted_ = false;
};

/// Subtracts the part of a cost that would not have drained yet if no other request had been
/// counted after it. If debt below it was refunded in between, this is too much: by at most the
/// costs that were to be settled at that time.
void refund(
    ArrivalTime& state, const Policy& policy, microseconds now, const Refund& taken) noexcept;

}  // namespace ratelimit
