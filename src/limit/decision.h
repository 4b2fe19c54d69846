#pragma once

#include "limit/rate.h"

#include <cstdint>
#include <optional>

namespace ratelimit {

/// One limit's answer to one request.
struct Verdict {
    bool granted = false;
    std::int64_t remaining = 0;  // requests of cost 1 that would pass now
    microseconds reset{ 0 };     // until the whole limit is there again
    /// Exact time until a request of this cost would pass if nothing else came: zero when it was
    /// granted, empty when it never would (a cost above the limit).
    std::optional<microseconds> retry_after{ microseconds{ 0 } };

    friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace ratelimit
