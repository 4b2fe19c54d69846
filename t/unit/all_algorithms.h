#pragma once

#include "limit/policy.h"

#include <array>
#include <span>
#include <string>

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
inline constexpr auto rate_algorithms = std::span(all_algorithms).first<algorithm_count - 1>();

/// Names the tests of a suite, of which each has an algorithm.
inline constexpr auto by_name = [](const auto& test) { return std::string(name_of(test.param)); };

}  // namespace ratelimit
