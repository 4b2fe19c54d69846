#pragma once

#include "limit/policy.h"

#include <chrono>
#include <string_view>

namespace ratelimit {

/// A day, a week (from Monday, ISO 8601), a month or a year of a time zone.
struct CalendarPeriod {
    std::chrono::local_days date;  // its first day
    std::chrono::sys_seconds begin;
    std::chrono::sys_seconds end;  // when the next one begins
};

/// The first instant of a day: midnight, or the first after it where clocks skip midnight. Where
/// they are set back over midnight, the day begins at the first one.
std::chrono::sys_seconds first_instant(const TimeZone& zone, std::chrono::local_days day) noexcept;

/// The period that contains `now`. A month begins on its `start_day`, 1 to 31, or on its last day
/// if it is shorter; the others do not depend on it. The period is not `none`.
CalendarPeriod period_at(
    const TimeZone& zone, Period period, unsigned start_day, std::chrono::sys_seconds now) noexcept;

/// Sets the period in which a request at `now`, since the epoch, counts. Does nothing for a policy
/// without calendar periods.
void enter_period(Policy& policy, microseconds now) noexcept;

/// "1" to "31". Empty: not a day of a month.
std::optional<std::uint8_t> parse_start_day(std::string_view text) noexcept;

}  // namespace ratelimit
