#include "redis/server_clock.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

/// The most that the clocks of one server, or of two, differ without a step.
constexpr microseconds drift = std::chrono::seconds{ 3 };
constexpr microseconds longest_catch_up = std::chrono::hours{ 24 };

microseconds steady_now() noexcept
{
    return std::chrono::duration_cast<microseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

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

bool ServerClock::set(const redisReply& reply) noexcept
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
    const microseconds now = steady_now();
    const microseconds shown = std::chrono::seconds{ *seconds } + microseconds{ *rest };
    note(shown, now, now);
    ahead_ = shown - now;
    return true;
}

void ServerClock::note(microseconds shown, microseconds called, microseconds now) noexcept
{
    const microseconds ahead = shown - now;
    const auto& before = ahead_ ? ahead_ : others_ahead_;
    if (before && shown + drift < *before + called) {
        set_back(*before - ahead, now);
        ahead_ = ahead;
    } else if (!ahead_ || ahead > *ahead_) {
        ahead_ = ahead;  // a step forward may be taken back
    }
}

void ServerClock::takes_over_from(const ServerClock& other) noexcept
{
    const auto& theirs = other.ahead_ ? other.ahead_ : other.others_ahead_;
    catches_up_ = std::max(catches_up_, other.catches_up_);
    if (!ahead_) {
        others_ahead_ = std::max(others_ahead_, theirs);
    } else if (theirs && *ahead_ + drift < *theirs) {
        set_back(*theirs - *ahead_, steady_now());
    }
}

void ServerClock::set_back(microseconds by, microseconds now) noexcept
{
    catches_up_ = std::max(catches_up_, std::optional{ now + std::min(by, longest_catch_up) });
}

bool ServerClock::set_back_within(microseconds span, microseconds now) const noexcept
{
    return catches_up_ && now - *catches_up_ < span;
}

std::optional<microseconds> ServerClock::now() const noexcept
{
    return ahead_ ? std::optional{ *ahead_ + steady_now() } : std::nullopt;
}

}  // namespace ratelimit::redis
