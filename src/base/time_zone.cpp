#include "base/time_zone.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <utility>

extern "C" char** environ;

namespace ratelimit {

namespace {

using std::chrono::days;
using std::chrono::seconds;
using std::chrono::sys_days;
using std::chrono::sys_seconds;
using std::chrono::year;

constexpr sys_seconds first_time = sys_days{ year{ 2000 } / 1 / 1 };
constexpr sys_seconds last_time = sys_days{ year{ 2101 } / 1 / 1 };
/// No zone changes its offset twice within so short a time: since 2000, seven days at least.
constexpr days step{ 3 };

/// The environment of the process is one variable, TZ, as long as this lives.
class OnlyTimeZone {
public:
    explicit OnlyTimeZone(const std::string& path)
        : text_("TZ=" + path), only_{ text_.data(), nullptr }
    {
        before_ = std::exchange(environ, only_.data());
        tzset();
    }
    ~OnlyTimeZone()
    {
        environ = before_;
        tzset();
    }
    OnlyTimeZone(const OnlyTimeZone&) = delete;
    OnlyTimeZone& operator=(const OnlyTimeZone&) = delete;

private:
    std::string text_;
    std::array<char*, 2> only_;
    char** before_ = nullptr;
};

std::string folder()
{
    const char* named = std::getenv("TZDIR");
    return named != nullptr && *named == '/' ? named : "/usr/share/zoneinfo";
}

bool is_time_zone(const std::string& path)
{
    std::array<char, 4> start{};
    std::ifstream file(path, std::ios::binary);
    return file.read(start.data(), start.size())
        && std::string_view(start.data(), start.size()) == "TZif";
}

seconds offset_at(sys_seconds time)
{
    const auto since_epoch = static_cast<std::time_t>(time.time_since_epoch().count());
    std::tm local{};
    localtime_r(&since_epoch, &local);
    return seconds{ local.tm_gmtoff };
}

/// The first second with the offset of `later`; `earlier` has another one.
sys_seconds change_between(sys_seconds earlier, sys_seconds later)
{
    const seconds offset = offset_at(later);
    while (later - earlier > seconds{ 1 }) {
        const sys_seconds middle = earlier + (later - earlier) / 2;
        (offset_at(middle) == offset ? later : earlier) = middle;
    }
    return later;
}

}  // namespace

bool can_be_time_zone(std::string_view name) noexcept
{
    constexpr std::size_t longest = 64;
    constexpr std::string_view allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+-/";
    return !name.empty() && name.size() <= longest && name.front() != '/' && name.back() != '/'
        && name.find("//") == name.npos && name.find_first_not_of(allowed) == name.npos;
}

TimeZoneError read_time_zone(std::string_view name, TimeZone& zone)
{
    zone.name = name;
    zone.changes = { { first_time, seconds{ 0 } } };
    if (name == "UTC") {
        return TimeZoneError::none;
    }
    const std::string path = folder() + '/' + zone.name;
    if (!can_be_time_zone(name) || !is_time_zone(path)) {
        return is_time_zone(folder() + "/UTC") ? TimeZoneError::unknown : TimeZoneError::no_data;
    }
    const OnlyTimeZone only(path);
    zone.changes.front().offset = offset_at(first_time);
    for (sys_seconds time = first_time; time < last_time; time += step) {
        const seconds offset = offset_at(time + step);
        if (offset != zone.changes.back().offset) {
            zone.changes.push_back({ change_between(time, time + step), offset });
        }
    }
    return TimeZoneError::none;
}

}  // namespace ratelimit
