#pragma once

#include "redis/call.h"

#include <algorithm>
#include <optional>

namespace ratelimit::redis {

/// Decides whether calls may wait for another server to take over: for 30 s from the first sign
/// that a server is away. A cluster takes less than that by default (cluster-node-timeout is 15 s).
/// A server that stays away longer no longer delays calls.
class TakeoverWindow {
public:
    /// Whether this call, whose server is away, may wait. Then it ends at the latest `timeout`
    /// after the first time that it waits.
    bool admits(Call& call, milliseconds now, milliseconds timeout) noexcept
    {
        if (!last_ || now - *last_ > quiet) {
            first_ = now;
        }
        last_ = now;
        call.routing.expires = std::min(call.routing.expires, now + timeout);
        return is_open(now) && call.routing.expires > now;
    }

    bool is_open(milliseconds now) const noexcept { return last_ && now - first_ < longest; }

private:
    static constexpr milliseconds longest{ 30'000 };
    static constexpr milliseconds quiet{ 10'000 };  // after such a time it is a new takeover

    milliseconds first_{ 0 };
    std::optional<milliseconds> last_;
};

}  // namespace ratelimit::redis
