#include "rehearse/log/log_time.h"

#include "limit/rate_text.h"

#include <array>
#include <chrono>
#include <cstring>
#include <ctime>

namespace ratelimit::rehearse {

namespace {

constexpr std::array<std::string_view, 12> months = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };

/// The number that these digits are; -1: they are none.
int digits(std::string_view text, std::size_t from, std::size_t count) noexcept
{
    return static_cast<int>(parse_number(text.substr(from, count), 0, 9999).value_or(-1));
}

/// Seconds since the epoch. Empty: no such day or time, or before the epoch.
std::optional<std::int64_t> seconds_of(
    int year, int month, int day, int hour, int minute, int zone_minutes) noexcept
{
    namespace ch = std::chrono;
    const ch::year_month_day date{ ch::year{ year }, ch::month{ static_cast<unsigned>(month) },
                                   ch::day{ static_cast<unsigned>(day) } };
    if (year < 1970 || month < 1 || day < 1 || !date.ok() || hour < 0 || hour > 23 || minute < 0
        || minute > 59) {
        return std::nullopt;
    }
    const std::int64_t days = ch::sys_days{ date }.time_since_epoch().count();
    const std::int64_t seconds = ((days * 24 + hour) * 60 + minute - zone_minutes) * 60;
    return seconds < 0 ? std::nullopt : std::optional{ seconds };
}

/// "+0100", or "+01:00" with a colon. Empty: not such a zone.
std::optional<int> zone_minutes(std::string_view text) noexcept
{
    if (text == "Z") {
        return 0;
    }
    const std::size_t colon = text.size() == 6 && text[3] == ':' ? 1 : 0;
    if (text.size() != 5 + colon || (text[0] != '+' && text[0] != '-')) {
        return std::nullopt;
    }
    const int hours = digits(text, 1, 2);
    const int minutes = digits(text, 3 + colon, 2);
    if (hours < 0 || hours > 15 || minutes < 0 || minutes > 59) {
        return std::nullopt;
    }
    const int all = hours * 60 + minutes;
    return text[0] == '-' ? -all : all;
}

/// "2026-11-22T14:06:05+00:00", as nginx writes it, or with Z, or with a fraction of a second.
std::optional<std::int64_t> parse_iso8601(std::string_view text) noexcept
{
    constexpr std::size_t shortest = 20;
    if (text.size() < shortest || text[4] != '-' || text[7] != '-'
        || (text[10] != 'T' && text[10] != ' ') || text[13] != ':' || text[16] != ':') {
        return std::nullopt;
    }
    const auto zone_at = text.find_first_of("Z+-", 19);
    if (zone_at == std::string_view::npos) {
        return std::nullopt;
    }
    const auto zone = zone_minutes(text.substr(zone_at));
    const auto in_minute = parse_decimal_seconds(text.substr(17, zone_at - 17));
    if (!zone || !in_minute || *in_minute > 60 * second_us) {
        return std::nullopt;
    }
    const auto minute = seconds_of(
        digits(text, 0, 4), digits(text, 5, 2), digits(text, 8, 2), digits(text, 11, 2),
        digits(text, 14, 2), *zone);
    return minute ? std::optional{ *minute * second_us + *in_minute } : std::nullopt;
}

int month_named(std::string_view name) noexcept
{
    for (std::size_t i = 0; i < months.size(); ++i) {
        if (months[i] == name) {
            return static_cast<int>(i + 1);
        }
    }
    return 0;
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
    const auto decimals = dot == text.npos ? "0" : text.substr(dot + 1);
    if (!whole || decimals.empty() || decimals.find_first_not_of("0123456789") != text.npos) {
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

/// "22/Nov/2026:14:06:05 +0100"
std::optional<std::int64_t> LogTime::parse_local(std::string_view text) noexcept
{
    constexpr std::size_t length = 26;
    constexpr std::size_t minute_length = 17;
    if (text.size() != length || text[17] != ':' || text[20] != ' ') {
        return std::nullopt;
    }
    const int in_minute = digits(text, 18, 2);
    if (in_minute < 0 || in_minute > 60) {
        return std::nullopt;
    }
    const std::string_view zone = text.substr(21);
    if (std::memcmp(text.data(), last_minute_, minute_length) != 0
        || std::memcmp(zone.data(), last_minute_ + minute_length, zone.size()) != 0) {
        if (text[2] != '/' || text[6] != '/' || text[11] != ':' || text[14] != ':') {
            return std::nullopt;
        }
        const auto minutes = zone_minutes(zone);
        if (!minutes) {
            return std::nullopt;
        }
        const auto start = seconds_of(
            digits(text, 7, 4), month_named(text.substr(3, 3)), digits(text, 0, 2),
            digits(text, 12, 2), digits(text, 15, 2), *minutes);
        if (!start) {
            return std::nullopt;
        }
        last_minute_s_ = *start;
        std::memcpy(last_minute_, text.data(), minute_length);
        std::memcpy(last_minute_ + minute_length, zone.data(), zone.size());
    }
    return (last_minute_s_ + in_minute) * second_us;
}

std::optional<std::int64_t> LogTime::parse(std::string_view text) noexcept
{
    switch (variable_) {
    case TimeVariable::msec:
        return parse_decimal_seconds(text);
    case TimeVariable::time_iso8601:
        return parse_iso8601(text);
    default:
        return parse_local(text);
    }
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
