#include "limit/fail_mode.h"

#include <algorithm>

namespace ratelimit {

Policy policy_of_one_node(const Policy& policy, std::int64_t nodes) noexcept
{
    // Rounded up, so that all nodes together keep the whole reserve.
    const std::int64_t reserve = policy.reserve / nodes + (policy.reserve % nodes > 0 ? 1 : 0);
    // Counts of a calendar period must not outlast it, as they would in a bucket.
    if (counts_at_one_time(policy.algorithm) || policy.begin.count() != 0) {
        Policy share = policy;
        share.rate.quota = std::max<std::int64_t>(1, policy.rate.quota / nodes);
        share.reserve = reserve;
        return share;
    }
    Policy own;
    own.algorithm =
        keeps_arrival_time(policy.algorithm) ? policy.algorithm : Algorithm::token_bucket;
    // A longer window is exact, whereas a fraction of the quota may not be a whole number.
    own.rate = { policy.rate.quota, policy.rate.window * nodes };
    const std::int64_t limit = std::max<std::int64_t>(1, policy.whole() / nodes);
    own.burst = own.algorithm == Algorithm::token_bucket ? limit : limit - 1;
    own.block = policy.block;
    own.override_record = policy.override_record;
    own.reserve = reserve;
    return own;
}

}  // namespace ratelimit
