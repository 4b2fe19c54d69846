#pragma once

#include "limit/policy.h"

#include <cstdint>

namespace ratelimit {

/// What becomes of a request for which no decision can be had.
enum class FailMode : std::uint8_t {
    open,    // it passes
    closed,  // it is refused
    local,   // this node decides alone
};

inline constexpr std::int64_t max_nodes = 10'000;

/// What each of so many nodes enforces of a policy when it is alone: a token bucket of the same
/// quota and burst, or what else keeps an arrival time, of 1/nodes of both.
Policy policy_of_one_node(const Policy& policy, std::int64_t nodes) noexcept;

}  // namespace ratelimit
