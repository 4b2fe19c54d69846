#pragma once

#include "limit/policy.h"
#include "limit/verdict.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace ratelimit::rehearse {

/// The units of one key with concurrency= that requests hold until they end. Times are in
/// microseconds since the epoch.
class UnitsInFlight {
public:
    /// Releases the units of requests that ended at `now` or before.
    void release(std::int64_t now)
    {
        while (!holders_.empty() && holders_.top().first <= now) {
            units_ -= holders_.top().second;
            holders_.pop();
        }
    }
    void take(std::int64_t units, std::int64_t end)
    {
        holders_.emplace(end, units);
        units_ += units;
        last_end_ = std::max(last_end_, end);
    }

    std::int64_t units() const noexcept { return units_; }
    /// When the last of the requests ends; 0: none has held anything.
    std::int64_t last_end() const noexcept { return last_end_; }

private:
    using Holder = std::pair<std::int64_t, std::int64_t>;  // when it ends, and its units

    std::priority_queue<Holder, std::vector<Holder>, std::greater<>> holders_;
    std::int64_t units_ = 0;  // of all holders
    std::int64_t last_end_ = 0;
};

/// A check of concurrency=. The module counts units in buckets by the time of their last renewal,
/// so that those of a killed worker are free after `hold`. Here the end of each request is known:
/// nothing needs to be renewed, and `hold` does not matter.
class InFlightCheck {
public:
    /// `now` must not be before that of an earlier check of this key. `end`: of the request.
    InFlightCheck(
        UnitsInFlight& in_flight, const Policy& policy, microseconds now, std::int64_t cost,
        microseconds end)
        : in_flight_(in_flight), quota_(policy.limit()), now_(now), cost_(cost), end_(end)
    {
        in_flight_.release(now.count());
        // Not units + cost, which could overflow.
        granted_ = cost == 0 || cost <= quota_ - in_flight_.units();
    }

    bool granted() const noexcept { return granted_; }

    /// Takes the units if `take` and the request is granted.
    Verdict commit(bool take)
    {
        if (take && granted_) {
            charge();
        }
        Verdict verdict;
        verdict.granted = granted_;
        verdict.remaining = std::max<std::int64_t>(0, quota_ - in_flight_.units());
        verdict.reset = life();
        return verdict;
    }

    /// Takes the units in any case.
    void charge()
    {
        if (cost_ > 0) {
            in_flight_.take(cost_, end_.count());
        }
    }

    /// How long after `now` nothing is held any longer.
    microseconds life() const noexcept
    {
        return std::max(microseconds{ 0 }, microseconds{ in_flight_.last_end() } - now_);
    }

private:
    UnitsInFlight& in_flight_;
    std::int64_t quota_;
    microseconds now_;
    std::int64_t cost_;
    microseconds end_;
    bool granted_ = false;
};

}  // namespace ratelimit::rehearse
