#include "rehearse/log/log_time.h"

#include "limit/rate_text.h"

#include <array>
#include <ctime>

namespace ratelimit::rehearse {

namespace {

/// Seconds since the epoch. Empty: no such minute.
std::optional<std::int64_t> minute_of(const std::string& text, const char* format) noexcept
{
    std::tm parts{};
    if (strptime(text.c_str(), format, &parts) != text.c_str() + text.size()) {
        return std::nullopt;
    }
    const int day = parts.tm_mday;
    const std::int64_t seconds = timegm(&parts);
    // Of a day that a month does not have, timegm makes one of the next month.
    return parts.tm_mday == day ? std::optional{ seconds } : std::nullopt;
}

/// How many seconds this zone is ahead of UTC: "+0100", "+01:00" or "Z". Empty: it is none. Not by
/// strptime, since that of musl reads only the first form.
std::optional<std::int64_t> zone_offset(std::string_view text) noexcept
{
    if (text == "Z") {
        return 0;
    }
    const std::size_t colon = text.size() == 6 && text[3] == ':' ? 1 : 0;
    if (text.size() != 5 + colon || (text[0] != '+' && text[0] != '-')) {
        return std::nullopt;
    }
    const auto hours = parse_number(text.substr(1, 2), 0, 15);
    const auto minutes = parse_number(text.substr(3 + colon), 0, 59);
    if (!hours || !minutes) {
        return std::nullopt;
    }
    const std::int64_t seconds = (*hours * 60 + *minutes) * 60;
    return text[0] == '-' ? -seconds : seconds;
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
    const auto end = local ? length + 3 : text.find_first_of("Z+-", length);
    if (end >= text.size() || text[length] != ':' || (local && text[end] != ' ')) {
        return std::nullopt;
    }
    const std::string_view minute = text.substr(0, length);
    const std::string_view zone = text.substr(local ? end + 1 : end);
    const auto in_minute = parse_decimal_seconds(text.substr(length + 1, end - length - 1));
    if (!in_minute || *in_minute > 60 * second_us) {
        return std::nullopt;
    }
    if (minute != last_minute_ || zone != last_zone_) {
        const char* format = local ? "%d/%b/%Y:%H:%M"
            : minute[10] == 'T'    ? "%Y-%m-%dT%H:%M"
                                   : "%Y-%m-%d %H:%M";
        const auto start = minute_of(std::string(minute), format);
        const auto offset = zone_offset(zone);
        if (!start || !offset || *start < *offset) {
            return std::nullopt;
        }
        last_minute_s_ = *start - *offset;
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
