#include "limit/rate_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace ratelimit {

namespace {

std::optional<std::chrono::seconds> unit_of(char letter) noexcept
{
    switch (letter) {
    case 's':
        return std::chrono::seconds{ 1 };
    case 'm':
        return std::chrono::minutes{ 1 };
    case 'h':
        return std::chrono::hours{ 1 };
    case 'd':
        return std::chrono::hours{ 24 };
    default:
        return std::nullopt;
    }
}

struct NamedPeriod {
    std::string_view name;
    Period period;
    microseconds longest;
};

/// With an hour more, or two, where clocks are set back.
constexpr std::array<NamedPeriod, 4> named_periods = { {
    { "day", Period::day, std::chrono::hours{ 26 } },
    { "week", Period::week, std::chrono::hours{ 7 * 24 + 2 } },
    { "month", Period::month, std::chrono::hours{ 31 * 24 + 2 } },
    { "year", Period::year, max_window },
} };

/// Null: there is no such period.
const NamedPeriod* period_named(std::string_view name) noexcept
{
    const auto* const found =
        std::find_if(named_periods.begin(), named_periods.end(), [name](const NamedPeriod& one) {
            return one.name == name;
        });
    return found == named_periods.end() ? nullptr : found;
}

}  // namespace

std::optional<std::int64_t> parse_number(
    std::string_view text, std::int64_t least, std::int64_t most) noexcept
{
    std::int64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, number);
    // from_chars also takes a minus sign, which no number here has.
    const bool whole =
        !text.empty() && text.front() != '-' && error == std::errc{} && stopped == end;
    return whole && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

std::optional<microseconds> parse_seconds(std::string_view text) noexcept
{
    if (text.empty()) {
        return std::nullopt;
    }
    const auto unit = unit_of(text.back());
    text.remove_suffix(unit ? 1 : 0);
    const auto length = unit.value_or(std::chrono::seconds{ 1 });
    const auto count = parse_number(text, 1, max_window / length);
    return count ? std::optional<microseconds>(length * *count) : std::nullopt;
}

std::optional<Rate> parse_calendar_rate(std::string_view text) noexcept
{
    const auto separator = text.find("r/");
    if (separator == std::string_view::npos) {
        return std::nullopt;
    }
    const auto quota = parse_number(text.substr(0, separator), 1, max_quota);
    const auto* const named = period_named(text.substr(separator + 2));
    if (!quota || named == nullptr) {
        return std::nullopt;
    }
    return Rate{ *quota, named->longest, named->period };
}

std::string_view expected_rate(std::string_view text) noexcept
{
    constexpr std::string_view digits = "0123456789";
    const auto separator = text.find_first_not_of(digits);
    if (separator != 0 && separator != text.npos && text.substr(separator).starts_with("r/")) {
        const auto window = text.substr(separator + 2);
        const auto unit = window.find_first_not_of(digits);
        if (unit != window.npos && unit + 1 == window.size() && unit_of(window.back())) {
            return "1 to 1000000000 requests in 1s to 366d";
        }
        if (period_named(window) != nullptr) {
            return "1 to 1000000000 requests in a day, week, month or year";
        }
    }
    return "a rate such as 100r/s, 5r/10s, 1000r/15m, 1r/d or a variable";
}

std::optional<Rate> parse_rate(std::string_view text) noexcept
{
    const auto separator = text.find("r/");
    if (separator == std::string_view::npos) {
        return std::nullopt;
    }
    const auto quota = parse_number(text.substr(0, separator), 1, max_quota);
    const auto window = text.substr(separator + 2);
    if (!quota || window.empty() || !unit_of(window.back())) {
        return std::nullopt;
    }
    const auto duration = window.size() == 1
        ? std::optional<microseconds>{ *unit_of(window.back()) }
        : parse_seconds(window);
    if (!duration) {
        return std::nullopt;
    }
    return Rate{ *quota, *duration };
}

std::string rate_text(const Rate& rate)
{
    for (const NamedPeriod& named : named_periods) {
        if (named.period == rate.period) {
            return std::to_string(rate.quota) + "r/" + std::string(named.name);
        }
    }
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(rate.window).count();
    constexpr std::array<std::pair<std::int64_t, char>, 4> units = {
        { { 86'400, 'd' }, { 3'600, 'h' }, { 60, 'm' }, { 1, 's' } }
    };
    for (const auto& [length, letter] : units) {
        if (seconds % length == 0) {
            const std::int64_t count = seconds / length;
            return std::to_string(rate.quota) + "r/" + (count == 1 ? "" : std::to_string(count))
                + letter;
        }
    }
    return {};
}

}  // namespace ratelimit
