#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::rehearse {

inline constexpr std::int64_t second_us = 1'000'000;

/// The variables that a log can have its times from.
enum class TimeVariable : std::uint8_t { msec, time_iso8601, time_local };

std::string_view name_of(TimeVariable variable) noexcept;

/// Reads one kind of time. The last minute is remembered, because lines mostly share it.
class LogTime {
public:
    explicit LogTime(TimeVariable variable) noexcept : variable_(variable) {}

    /// Microseconds since the epoch, from 1970 to 9999. Empty: not such a time.
    std::optional<std::int64_t> parse(std::string_view text);

private:
    TimeVariable variable_;
    std::string last_minute_;  // "22/Nov/2026:14:06"
    std::string last_zone_;    // "+0100"
    std::int64_t last_minute_s_ = 0;
};

/// $msec and $request_time: seconds with up to six decimals. Empty: not such a number.
std::optional<std::int64_t> parse_decimal_seconds(std::string_view text) noexcept;

/// "2026-11-22T14:06:00Z".
std::string utc_text(std::int64_t seconds);

}  // namespace ratelimit::rehearse
