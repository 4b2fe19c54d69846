#include "limit/fail_mode.h"

#include <algorithm>

namespace ratelimit {

Policy policy_of_one_node(const Policy& policy, std::int64_t nodes) noexcept
{
    Policy own;
    own.algorithm =
        keeps_arrival_time(policy.algorithm) ? policy.algorithm : Algorithm::token_bucket;
    // The quota in a window that is longer is exact, where a part of the quota would not be whole.
    own.rate = { policy.rate.quota, policy.rate.window * nodes };
    const std::int64_t limit = std::max<std::int64_t>(1, policy.limit() / nodes);
    own.burst = own.algorithm == Algorithm::token_bucket ? limit : limit - 1;
    return own;
}

}  // namespace ratelimit
