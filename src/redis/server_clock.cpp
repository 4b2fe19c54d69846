#include "redis/server_clock.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

std::optional<std::int64_t> number_of(const redisReply& reply, std::int64_t most) noexcept
{
    if (reply.type != REDIS_REPLY_STRING) {
        return std::nullopt;
    }
    const char* const end = reply.str + reply.len;
    std::int64_t number = 0;
    const auto [read, error] = std::from_chars(reply.str, end, number);
    const bool good = error == std::errc{} && read == end && number >= 0 && number <= most;
    return good ? std::optional{ number } : std::nullopt;
}

}  // namespace

microseconds ServerClock::steady_now() noexcept
{
    return std::chrono::duration_cast<microseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

bool ServerClock::set(const redisReply& reply, microseconds sent) noexcept
{
    constexpr std::int64_t most_seconds = latest_time.count() / 1'000'000 - 1;
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements != 2) {
        return false;
    }
    const auto seconds = number_of(*reply.element[0], most_seconds);
    const auto rest = number_of(*reply.element[1], 999'999);
    if (!seconds || !rest) {
        return false;
    }
    set({ sent, std::chrono::seconds{ *seconds } + microseconds{ *rest }, steady_now() });
    return true;
}

void ServerClock::set(const ClockReading& reading) noexcept
{
    // Of a reply that waited for this process, `now` says little.
    const microseconds least = reading.since_epoch - reading.now;
    const microseconds most = reading.since_epoch - reading.called;
    if (steps_.ahead() < least || steps_.ahead() > most) {
        note(reading);
        steps_.set_ahead(std::clamp(steps_.ahead().value_or(least), least, most));
    }
}

void ServerClock::takes_over_from(const ServerClock& other) noexcept
{
    steps_.takes_over_from(other.steps_, steady_now());
}

std::optional<microseconds> ServerClock::at(microseconds steady) const noexcept
{
    const auto ahead = steps_.ahead();
    return ahead ? std::optional{ *ahead + steady } : std::nullopt;
}

}  // namespace ratelimit::redis
