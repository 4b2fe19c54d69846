#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <map>
#include <memory>

namespace ratelimit {

/// What a limit decides, worked out the slow and plain way, to hold the scripts against: no closed
/// formula for reset and retry, but a search for the first microsecond at which they come true.
class Model {
public:
    using Time = std::int64_t;  // microseconds since the epoch

    virtual ~Model() = default;

    static std::unique_ptr<Model> of(Algorithm algorithm);

    /// Whether a request of this cost passes, all else as it is. Sets the time right first: returns
    /// the one at which the decision is made.
    bool grants(const Policy& policy, Time& now, std::int64_t cost);

    /// The answer after `grants`, at the time that it returned; the request is counted if `take`.
    Verdict commit(const Policy& policy, Time now, std::int64_t cost, bool granted, bool take);

protected:
    /// Deals with a state that is ahead of the clock; returns the time to decide at.
    virtual Time adjusted(const Policy& policy, Time now, bool writes) = 0;
    virtual std::int64_t used(const Policy& policy, Time now) const = 0;
    virtual bool fits(const Policy& policy, Time now, std::int64_t cost) const
    {
        return used(policy, now) + cost <= policy.limit();
    }
    virtual std::int64_t remaining(const Policy& policy, Time now) const
    {
        return std::max<std::int64_t>(0, policy.limit() - used(policy, now));
    }
    virtual bool whole(const Policy& policy, Time now) const { return used(policy, now) == 0; }
    virtual void take(const Policy& policy, Time now, std::int64_t cost) = 0;

private:
    Time asked_ = 0;  // before it was set right
};

}  // namespace ratelimit
