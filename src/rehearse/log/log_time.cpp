#include "rehearse/log/log_time.h"

#include "limit/rate_text.h"

#include <array>
#include <ctime>

namespace ratelimit::rehearse {

namespace {

/// Seconds since the epoch, of a minute and its zone. Empty: no such minute, or before the epoch.
std::optional<std::int64_t> minute_of(const std::string& text, const char* format) noexcept
{
    std::tm parts{};
    if (strptime(text.c_str(), format, &parts) != text.c_str() + text.size()) {
        return std::nullopt;
    }
    const int day = parts.tm_mday;
    const std::int64_t offset = parts.tm_gmtoff;
    const std::int64_t seconds = timegm(&parts) - offset;
    // Of a day that a month does not have, timegm makes one of the next month.
    return parts.tm_mday == day && seconds >= 0 ? std::optional{ seconds } : std::nullopt;
}

}  // namespace

std::string_view name_of(TimeVariable variable) noexcept
{
    constexpr std::array<std::string_view, 3> names = { "msec", "time_iso8601", "time_local" };
    return names[static_cast<std::size_t>(variable)];
}

std::optional<std::int64_t> parse_decimal_seconds(std::string_view text) noexcept
{
    constexpr std::int64_t end_of_9999 = 253'402'300'800;
    const auto dot = text.find('.');
    const auto whole = parse_number(text.substr(0, dot), 0, end_of_9999 - 1);
    if (dot == text.npos || !whole) {
        return whole ? std::optional(*whole * second_us) : std::nullopt;
    }
    const auto decimals = text.substr(dot + 1);
    if (decimals.empty() || decimals.find_first_not_of("0123456789") != text.npos) {
        return std::nullopt;
    }
    std::int64_t time = *whole * second_us;
    std::int64_t unit = second_us;
    for (const char digit : decimals) {
        unit /= 10;
        time += unit * (digit - '0');  // digits beyond the sixth are dropped
    }
    return time;
}

/// "22/Nov/2026:14:06:05 +0100", or "2026-11-22T14:06:05+00:00", as nginx writes it, or with Z, or
/// with a fraction of a second.
std::optional<std::int64_t> LogTime::parse(std::string_view text)
{
    if (variable_ == TimeVariable::msec) {
        return parse_decimal_seconds(text);
    }
    const bool local = variable_ == TimeVariable::time_local;
    const std::size_t length = local ? 17 : 16;  // of what comes before the seconds
    const auto zone_at = local ? length + 3 : text.find_first_of("Z+-", length);
    if (zone_at >= text.size() || text[length] != ':' || (local && text[zone_at] != ' ')) {
        return std::nullopt;
    }
    const std::string_view minute = text.substr(0, length);
    const std::string_view zone = text.substr(zone_at);
    const auto in_minute = parse_decimal_seconds(text.substr(length + 1, zone_at - length - 1));
    if (!in_minute || *in_minute > 60 * second_us) {
        return std::nullopt;
    }
    if (minute != last_minute_ || zone != last_zone_) {
        const char* format = local ? "%d/%b/%Y:%H:%M%z"
            : minute[10] == 'T'    ? "%Y-%m-%dT%H:%M%z"
                                   : "%Y-%m-%d %H:%M%z";
        const auto start = minute_of(std::string(minute).append(zone), format);
        if (!start) {
            return std::nullopt;
        }
        last_minute_s_ = *start;
        last_minute_ = minute;
        last_zone_ = zone;
    }
    return last_minute_s_ * second_us + *in_minute;
}

std::string utc_text(std::int64_t seconds)
{
    const std::time_t time = seconds;
    std::tm parts{};
    char text[32];
    return { text,
             std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&time, &parts)) };
}

}  // namespace ratelimit::rehearse
