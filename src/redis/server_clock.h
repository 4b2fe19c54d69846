#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

struct redisReply;

namespace ratelimit::redis {

using std::chrono::microseconds;

/// The latest time that a server can have, since the epoch: the year 2112. Up to there, and some
/// increments on, a double is exact to the microsecond.
inline constexpr microseconds latest_time{ std::int64_t{ 1 } << 52U };

/// What a Redis server's clock shows now: its latest reply to TIME, plus the time since then. It is
/// behind by as long as the reply took to arrive.
class ServerClock {
public:
    /// `reply`: to TIME. False: it is not a time, and changes nothing.
    bool set(const redisReply& reply) noexcept;
    /// Since the epoch. Empty: no reply yet.
    std::optional<microseconds> now() const noexcept;

    /// It showed `shown` when a call that was made at `called` was executed. The reply may have
    /// waited for this process until `now`. Both by the steady clock.
    void note(microseconds shown, microseconds called, microseconds now) noexcept;

    /// The server has keys now that another one had, which counted by its own clock: what that
    /// showed is compared as if this one had shown it.
    void takes_over_from(const ServerClock& other) noexcept;

    /// Whether it was set back by more than clocks drift apart, and less than `span` has passed
    /// since it showed again what it had shown before; a day after the step at the latest it counts
    /// as if it did. `note` and `set` notice a step, so it may be older.
    bool set_back_within(microseconds span, microseconds now) const noexcept;

private:
    void set_back(microseconds by, microseconds now) noexcept;

    // Of the steady clock; empty: not known.
    std::optional<microseconds> ahead_;
    std::optional<microseconds> others_ahead_;  // while that is not known: of who had its keys
    std::optional<microseconds> catches_up_;    // when it shows again what it had shown before
};

}  // namespace ratelimit::redis
