#pragma once

#include "loop/event_loop.h"

namespace ratelimit::redis {

/// Whether calls may wait for another server to take over: for some time from the first sign that a
/// server is away. It is longer than a cluster takes by default (cluster-node-timeout is 15 s); a
/// server that stays away longer delays no call.
class TakeoverWindow {
public:
    /// A sign that a server is away. True: a takeover may be under way.
    bool note(milliseconds now) noexcept
    {
        if (!open_ || now - last_ > quiet) {
            first_ = now;
        }
        open_ = true;
        last_ = now;
        return is_open(now);
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
