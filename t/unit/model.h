#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <map>
#include <memory>

namespace ratelimit {

/// The decisions of a limit, computed slowly and plainly, as the reference for the scripts: not by
/// closed formulas for reset and retry, but by searching for the first microsecond at which they
/// hold. A key whose policy has a block keeps it in all policies.
class Model {
public:
    using Time = std::int64_t;  // microseconds since the epoch

    virtual ~Model() = default;

    static std::unique_ptr<Model> of(Algorithm algorithm);

    /// Whether a request of this cost passes. Sets `now` to the time of the decision, which may be
    /// the time of a state that is ahead.
    bool grants(const Policy& policy, Time& now, std::int64_t cost);

    /// The verdict after `grants`, at the time that it set; the request is counted if `take`.
    Verdict commit(const Policy& policy, Time now, std::int64_t cost, bool granted, bool take);

protected:
    /// Handles a state that is ahead of the clock; returns the time of the decision.
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
    /// For a request that does not fit at the time `now`.
    virtual microseconds retry(const Policy& policy, Time now, std::int64_t cost) const;
    /// Forgets all that was counted.
    virtual void clear() = 0;

private:
    Time asked_ = 0;          // the time of the request, before `adjusted`
    Time blocked_until_ = 0;  // at most a block after now
    Time rest_ = 0;           // of the block, at that time
};

}  // namespace ratelimit
