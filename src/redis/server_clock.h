#pragma once

#include "base/clock_steps.h"

#include <cstdint>

struct redisReply;

namespace ratelimit::redis {

using std::chrono::microseconds;

/// The latest time that a server can have, since the epoch: the year 2112. Up to there, and some
/// increments on, a double is exact to the microsecond.
inline constexpr microseconds latest_time{ std::int64_t{ 1 } << 52U };

/// What a Redis server's clock shows: its latest reply that set it, plus the time since then. It is
/// wrong by at most the time that the call and its reply took.
class ServerClock {
public:
    static microseconds steady_now() noexcept;

    /// `reply`: to TIME, which was sent at `sent` by the steady clock. False: it is not a time,
    /// and changes nothing.
    bool set(const redisReply& reply, microseconds sent) noexcept;
    /// The same by a reading that came with another reply. It notes it, too.
    void set(const ClockReading& reading) noexcept;
    /// Since the epoch, at this time of the steady clock. Empty: no reply yet.
    std::optional<microseconds> at(microseconds steady) const noexcept;

    /// It showed `since_epoch` when a call that was made at `called` was executed. The reply may
    /// have waited for this process until `now`.
    void note(const ClockReading& reading) noexcept { steps_.note(reading); }

    /// The server now has keys that another one counted by its own clock: the readings of that
    /// clock count as readings of this one.
    void takes_over_from(const ServerClock& other) noexcept;

    /// ClockSteps::set_back_within. `note` and `set` notice a step.
    bool set_back_within(microseconds span, microseconds now) const noexcept
    {
        return steps_.set_back_within(span, now);
    }

private:
    ClockSteps steps_;
};

/// A command that was answered, by the steady clock, and the clock of the server that answered.
struct Exchange {
    ServerClock* clock = nullptr;  // null: the reply was late, and is no reading of its clock
    microseconds sent{ 0 };
    microseconds answered{ 0 };

    /// The clock showed this when the command was executed. 0: the reply does not tell. `sets`: the
    /// clock is set; otherwise a step is noticed, also one of many small ones.
    void read(microseconds since_epoch, bool sets) const noexcept
    {
        if (clock != nullptr && since_epoch.count() > 0) {
            const ClockReading reading{ sent, since_epoch, answered };
            sets ? clock->set(reading) : clock->note(reading);
        }
    }
    /// The reply is to TIME. False: it is not a time.
    bool read(const redisReply& reply) const noexcept
    {
        return clock == nullptr || clock->set(reply, sent);
    }
};

}  // namespace ratelimit::redis
