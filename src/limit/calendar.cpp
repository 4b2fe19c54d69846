#include "limit/calendar.h"

#include "limit/rate_text.h"

#include <algorithm>

namespace ratelimit {

namespace {

using std::chrono::day;
using std::chrono::days;
using std::chrono::local_days;
using std::chrono::local_seconds;
using std::chrono::months;
using std::chrono::seconds;
using std::chrono::sys_seconds;
using std::chrono::year_month;
using std::chrono::year_month_day;

using Changes = std::vector<TimeZone::Change>;

/// The offset in force at this time.
Changes::const_iterator offset_at(const Changes& changes, sys_seconds time) noexcept
{
    const auto after = std::upper_bound(
        changes.begin(), changes.end(), time,
        [](sys_seconds at, const TimeZone::Change& change) { return at < change.from; });
    return after == changes.begin() ? after : after - 1;
}

local_days date_of(const TimeZone& zone, sys_seconds time) noexcept
{
    const auto since_epoch = time.time_since_epoch() + offset_at(zone.changes, time)->offset;
    return std::chrono::floor<days>(local_seconds{ since_epoch });
}

/// The day on which a period of this month begins.
local_days start_in(year_month month, unsigned start_day) noexcept
{
    const auto last = (month / std::chrono::last).day();
    return local_days{ month / std::min(day{ start_day }, last) };
}

/// The last day until `date` on which a period begins.
local_days first_day(Period period, unsigned start_day, local_days date) noexcept
{
    const year_month_day civil{ date };
    const year_month month{ civil.year(), civil.month() };
    switch (period) {
    case Period::week:
        return date - (std::chrono::weekday{ date } - std::chrono::Monday);
    case Period::month: {
        const local_days start = start_in(month, start_day);
        return start <= date ? start : start_in(month - months{ 1 }, start_day);
    }
    case Period::year:
        return local_days{ civil.year() / 1 / 1 };
    case Period::day:
    case Period::none:
        break;
    }
    return date;
}

/// When the period after one with this first day begins.
local_days next_first_day(Period period, unsigned start_day, local_days first) noexcept
{
    const year_month_day civil{ first };
    switch (period) {
    case Period::week:
        return first + days{ 7 };
    case Period::month:
        return start_in(year_month{ civil.year(), civil.month() } + months{ 1 }, start_day);
    case Period::year:
        return local_days{ (civil.year() + std::chrono::years{ 1 }) / 1 / 1 };
    case Period::day:
    case Period::none:
        break;
    }
    return first + days{ 1 };
}

/// 202611013 for the month that begins on 1 November 2026: date and kind. Less than 2^30.
std::uint32_t number_of(Period period, local_days date) noexcept
{
    const year_month_day civil{ date };
    const auto year = static_cast<std::uint32_t>(static_cast<int>(civil.year()));
    return (year * 10000 + static_cast<unsigned>(civil.month()) * 100
            + static_cast<unsigned>(civil.day()))
        * 10
        + static_cast<std::uint32_t>(period);
}

}  // namespace

sys_seconds first_instant(const TimeZone& zone, local_days day) noexcept
{
    const seconds midnight = local_seconds{ day }.time_since_epoch();
    constexpr std::chrono::hours largest_offset{ 26 };
    auto at = offset_at(zone.changes, sys_seconds{ midnight } - largest_offset);
    for (;; ++at) {
        // The first time with this offset at which it is midnight or later.
        const sys_seconds reached{ midnight - at->offset };
        const bool is_first = at == zone.changes.begin();
        const sys_seconds time = is_first ? reached : std::max(at->from, reached);
        if (at + 1 == zone.changes.end() || time < (at + 1)->from) {
            return time;
        }
    }
}

CalendarPeriod period_at(
    const TimeZone& zone, Period period, unsigned start_day, sys_seconds now) noexcept
{
    CalendarPeriod found;
    found.date = first_day(period, start_day, date_of(zone, now));
    found.begin = first_instant(zone, found.date);
    for (;;) {
        const local_days next = next_first_day(period, start_day, found.date);
        found.end = first_instant(zone, next);
        if (now < found.end) {
            return found;
        }
        // Clocks were set back over midnight: the old date comes again, but its period has ended.
        found.date = next;
        found.begin = found.end;
    }
}

void enter_period(Policy& policy, microseconds now) noexcept
{
    if (policy.calendar == nullptr || policy.rate.period == Period::none) {
        return;
    }
    const CalendarPeriod found = period_at(
        *policy.calendar, policy.rate.period, policy.start_day,
        sys_seconds{ std::chrono::floor<seconds>(now) });
    policy.begin = found.begin.time_since_epoch();
    policy.rate.window = found.end - found.begin;
    policy.period_number = number_of(policy.rate.period, found.date);
}

std::optional<std::uint8_t> parse_start_day(std::string_view text) noexcept
{
    const auto number = parse_number(text, 1, 31);
    return number ? std::optional(static_cast<std::uint8_t>(*number)) : std::nullopt;
}

}  // namespace ratelimit
