#pragma once

#include "limit/policy.h"
#include "limit/verdict.h"

#include <map>
#include <memory>

namespace ratelimit {

/// The decisions of a limit, computed slowly and plainly, as the reference for the scripts: not by
/// closed formulas for reset and retry, but by searching for the first microsecond at which they
/// hold.
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

    struct Decision {
        Verdict state;
        Time at = 0;  // not before the state's time
        bool taken = false;

        /// How long after `now` the state of the key is needed.
        Time needed_for(const Policy& policy, Time now) const;
    };
    /// Both, for a request at `now` that no other limit refuses.
    Decision decide(const Policy& policy, Time now, std::int64_t cost);

    /// A request that came at `refused` was refused: from `begins` on the key is blocked for
    /// Policy::block, unless it is blocked. Returns whether a block begins.
    bool begin_block(const Policy& policy, Time now, Time refused, Time begins);

    /// Units that were counted at `counted`, and that no request used, are returned, or count for
    /// this long: no block begins because of them, and one that began since is lifted.
    void spare(Time now, Time counted, Time lasts);

protected:
    /// Handles a state that is ahead of the clock; returns the time of the decision.
    virtual Time adjusted(const Policy& policy, Time now, bool writes) = 0;
    virtual std::int64_t used(const Policy& policy, Time now) const = 0;
    virtual bool fits(const Policy& policy, Time now, std::int64_t cost) const
    {
        return used(policy, now) + cost + policy.reserve <= policy.whole();
    }
    virtual std::int64_t remaining(const Policy& policy, Time now) const
    {
        return std::max<std::int64_t>(0, policy.whole() - policy.reserve - used(policy, now));
    }
    virtual bool whole(const Policy& policy, Time now) const { return used(policy, now) == 0; }
    virtual void take(const Policy& policy, Time now, std::int64_t cost) = 0;
    /// For a request that does not fit at the time `now`.
    virtual microseconds retry(const Policy& policy, Time now, std::int64_t cost) const;

private:
    struct Block {
        Time refused = 0;
        Time begins = 0;
        Time ends = 0;
    };

    Time asked_ = 0;  // the time of the request, before `adjusted`
    Block block_;
    Time spared_ = 0;       // no refusal until then begins a block
    Time rest_ = 0;         // of the block, when the request was asked for
    bool allowed_ = false;  // by the counts
};

}  // namespace ratelimit
