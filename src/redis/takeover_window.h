#pragma once

#include "redis/call.h"

#include <algorithm>

namespace ratelimit::redis {

/// Whether calls may wait for another server to take over: for some time from the first sign that a
/// server is away. It is longer than a cluster takes by default (cluster-node-timeout is 15 s); a
/// server that stays away longer delays no call.
class TakeoverWindow {
public:
    /// Whether this call, whose server is away, may wait until its `routing.waits_until`: `timeout`
    /// from the first time that it waits.
    bool admits(Call& call, milliseconds now, milliseconds timeout) noexcept
    {
        if (!open_ || now - last_ > quiet) {
            first_ = now;
        }
        open_ = true;
        last_ = now;
        milliseconds& until = call.routing.waits_until;
        if (until.count() == 0) {
            until = std::min(now + timeout, call.routing.expires);
        }
        return is_open(now) && until > now;
    }

    /// Whether an error that goes with it is to be reported: once for each case.
    bool first_error(milliseconds now) noexcept
    {
        const bool first = !failed_ || now - last_error_ > quiet;
        failed_ = true;
        last_error_ = now;
        return first;
    }

    bool is_open(milliseconds now) const noexcept { return open_ && now - first_ < longest; }

private:
    static constexpr milliseconds longest{ 30'000 };
    static constexpr milliseconds quiet{ 10'000 };  // what comes later is a new case

    milliseconds first_{ 0 };
    milliseconds last_{ 0 };
    milliseconds last_error_{ 0 };
    bool open_ = false;
    bool failed_ = false;
};

}  // namespace ratelimit::redis
