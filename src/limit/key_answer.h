#pragma once

#include "limit/rate.h"

#include <cstdint>

namespace ratelimit {

/// What Redis answered about the counts of a key, and what orders it among other answers.
struct KeyAnswer {
    std::int64_t left = 0;      // requests of cost 1 that would pass, after what the call counted
    std::int64_t beyond = 0;    // units that the call counted beyond the limit
    microseconds reset{ 0 };    // as in Verdict
    microseconds decided{ 0 };  // when, by Redis's clock, since the epoch
    // By one clock of this node: a lower bound of when the call was sent, and an upper bound of
    // when the answer arrived.
    microseconds sent{ 0 };
    microseconds received{ 0 };
};

}  // namespace ratelimit
