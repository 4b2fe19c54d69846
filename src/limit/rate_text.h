#pragma once

#include "limit/rate.h"

#include <optional>
#include <string>
#include <string_view>

namespace ratelimit {

inline constexpr std::int64_t max_cost = 1'000'000'000;
inline constexpr microseconds max_window = std::chrono::hours{ 24 * 366 };

/// "100r/s", "5r/10s", "1000r/15m", "1r/d": a quota from 1 to max_quota, and a window of at most
/// max_window in s, m, h or d with an optional count. Empty: not a rate.
std::optional<Rate> parse_rate(std::string_view text) noexcept;

/// "10000r/month", also day, week and year: a quota for calendar periods. Its window is the longest
/// that such a period can be. Empty: not a rate of this form.
std::optional<Rate> parse_calendar_rate(std::string_view text) noexcept;

/// "60r/m", "90r/15s", "10000r/month": as parse_rate or parse_calendar_rate reads it.
std::string rate_text(const Rate& rate);

/// What was expected in place of a text that is not a rate: its range if only that is wrong.
std::string_view expected_rate(std::string_view text) noexcept;

/// Digits only, from `least` to `most`. Empty: not such a number.
std::optional<std::int64_t> parse_number(
    std::string_view text, std::int64_t least, std::int64_t most) noexcept;

/// "10s", "5m", "1h", "1d", "90": a time of whole seconds, at least one, at most max_window.
std::optional<microseconds> parse_seconds(std::string_view text) noexcept;

}  // namespace ratelimit
