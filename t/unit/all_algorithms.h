#pragma once

#include "limit/policy.h"

#include <array>

namespace ratelimit {

inline constexpr std::array all_algorithms = {
    Algorithm::fixed_window,
    Algorithm::sliding_window_counter,
    Algorithm::sliding_window_log,
    Algorithm::sliding_window_buckets,
    Algorithm::token_bucket,
    Algorithm::leaky_bucket,
    Algorithm::gcra,
    Algorithm::concurrency,
};
static_assert(all_algorithms.size() == algorithm_count);

/// Those with a rate. Concurrency has other arguments and replies (holding_test.cpp).
inline constexpr std::array rate_algorithms = {
    Algorithm::fixed_window,
    Algorithm::sliding_window_counter,
    Algorithm::sliding_window_log,
    Algorithm::sliding_window_buckets,
    Algorithm::token_bucket,
    Algorithm::leaky_bucket,
    Algorithm::gcra,
};

}  // namespace ratelimit
