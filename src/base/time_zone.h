#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit {

/// The UTC offsets of a time zone from 2000 to 2100.
struct TimeZone {
    struct Change {
        std::chrono::sys_seconds from;
        std::chrono::seconds offset;  // local time less UTC
    };

    std::string name;
    /// In the order of time, at least one. The first also holds for all earlier times.
    std::vector<Change> changes;
};

/// Whether a time zone may have this name: letters, digits and _ + - with single slashes between.
bool can_be_time_zone(std::string_view name) noexcept;

enum class TimeZoneError {
    none,
    unknown,  // this machine has no such time zone
    no_data,  // it has no time zones at all
};

/// Reads a time zone by the C library, from the files in $TZDIR or /usr/share/zoneinfo; UTC needs
/// none. For the configuration: it changes TZ of the process while it reads.
TimeZoneError read_time_zone(std::string_view name, TimeZone& zone);

}  // namespace ratelimit
