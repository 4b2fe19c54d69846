#pragma once

#include "limit/rate.h"

#include <cstdint>

namespace ratelimit {

/// A counted cost that a refund subtracts.
struct Refund {
    std::int64_t cost = 0;
    microseconds taken_at{ 0 };  // time of the check, by the clock that decided
    microseconds reset{ 0 };     // from the verdict of the check
};

}  // namespace ratelimit
