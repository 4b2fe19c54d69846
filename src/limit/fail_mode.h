#pragma once

#include "limit/policy.h"

#include <cstdint>

namespace ratelimit {

/// What happens to a request that cannot be decided.
enum class FailMode : std::uint8_t {
    open,    // it passes
    closed,  // it is refused
    local,   // this node decides from its own memory
};

inline constexpr std::int64_t max_nodes = 10'000;

/// The policy that each of `nodes` nodes enforces without Redis: 1/nodes of the quota and burst. An
/// algorithm that keeps no arrival time is replaced by token_bucket, except concurrency and
/// calendar periods.
Policy policy_of_one_node(const Policy& policy, std::int64_t nodes) noexcept;

}  // namespace ratelimit
