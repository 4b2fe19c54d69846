// Calendar periods: their begin and end, and the time zones that are read for them.

#include "limit/calendar.h"
#include "limit/grammar.h"
#include "limit/override.h"
#include "limit/rate_text.h"
#include "limit/window_counts.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using std::chrono::local_days;
using std::chrono::sys_days;
using std::chrono::sys_seconds;

TimeZone zone_of(std::string_view name)
{
    TimeZone zone;
    EXPECT_EQ(read_time_zone(name, zone), TimeZoneError::none) << name;
    return zone;
}

Period period_named(std::string_view name)
{
    return parse_calendar_rate("1r/" + std::string(name)).value_or(Rate{}).period;
}

/// The number that enter_period gives a period.
std::uint32_t number_of(const TimeZone& zone, Period period, unsigned start, sys_seconds now)
{
    Policy policy{ Algorithm::fixed_window, { 1, 24h, period }, {}, {} };
    policy.calendar = &zone;
    policy.start_day = static_cast<std::uint8_t>(start);
    enter_period(policy, now.time_since_epoch());
    return policy.period_number;
}

TEST(Calendar, periods_are_those_of_another_library)
{
    // ccache makes the path of this source relative to the folder of the program.
    const std::string script =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / __FILE__).parent_path()
        / "calendar_oracle.py";
    struct Close {
        void operator()(std::FILE* pipe) const noexcept { pclose(pipe); }
    };
    const std::string command = "python3 '" + script + "' 20261124 20000";
    const std::unique_ptr<std::FILE, Close> oracle(popen(command.c_str(), "r"));
    ASSERT_NE(oracle, nullptr);
    std::map<std::string, TimeZone> zones;
    std::array<char, 256> line{};
    int lines = 0;
    while (std::fgets(line.data(), line.size(), oracle.get()) != nullptr) {
        std::istringstream text(line.data());
        std::string name;
        std::string kind;
        unsigned start = 0;
        std::int64_t now = 0;
        std::int64_t begin = 0;
        std::int64_t end = 0;
        std::uint32_t number = 0;
        ASSERT_TRUE(text >> name >> kind >> start >> now >> begin >> end >> number);
        if (!zones.contains(name)) {
            zones[name] = zone_of(name);
        }
        const sys_seconds time{ std::chrono::seconds{ now } };
        const auto found = period_at(zones[name], period_named(kind), start, time);
        ASSERT_EQ(found.begin.time_since_epoch().count(), begin) << line.data();
        ASSERT_EQ(found.end.time_since_epoch().count(), end) << line.data();
        ASSERT_EQ(number_of(zones[name], period_named(kind), start, time), number) << line.data();
        ++lines;
    }
    EXPECT_EQ(lines, 20000);
}

TEST(Calendar, a_month_begins_on_its_last_day_if_it_is_too_short)
{
    const TimeZone utc = zone_of("UTC");
    const auto begins = [&utc](sys_days now) {
        return period_at(utc, Period::month, 31, now).begin;
    };
    EXPECT_EQ(begins(2027y / 2 / 27), sys_days{ 2027y / 1 / 31 });
    EXPECT_EQ(begins(2027y / 2 / 28), sys_days{ 2027y / 2 / 28 });
    EXPECT_EQ(begins(2028y / 2 / 28), sys_days{ 2028y / 1 / 31 }) << "a leap year";
    EXPECT_EQ(begins(2028y / 2 / 29), sys_days{ 2028y / 2 / 29 });
    EXPECT_EQ(begins(2028y / 3 / 30), sys_days{ 2028y / 2 / 29 });
    EXPECT_EQ(begins(2028y / 4 / 30), sys_days{ 2028y / 4 / 30 });
}

TEST(Calendar, days_have_23_to_25_hours_where_clocks_are_changed)
{
    const TimeZone berlin = zone_of("Europe/Berlin");
    const auto length = [&berlin](sys_days day) {
        const auto found = period_at(berlin, Period::day, 1, day + 12h);
        return found.end - found.begin;
    };
    EXPECT_EQ(length(2026y / 3 / 29), 23h);
    EXPECT_EQ(length(2026y / 10 / 25), 25h);
    EXPECT_EQ(length(2026y / 10 / 26), 24h);
}

/// 00:00 to 01:00 is skipped on 2 January 2030; on 4 January 00:00 to 00:30 comes twice.
const TimeZone skipping{ "skipping",
                         { { sys_days{ 2000y / 1 / 1 }, 0s },
                           { sys_days{ 2030y / 1 / 2 }, 1h },
                           { sys_days{ 2030y / 1 / 3 } + 23h + 30min, 30min } } };

TEST(Calendar, a_day_without_midnight_begins_after_it_and_one_with_two_at_the_first)
{
    EXPECT_EQ(first_instant(skipping, local_days{ 2030y / 1 / 2 }), sys_days{ 2030y / 1 / 2 });
    EXPECT_EQ(
        first_instant(skipping, local_days{ 2030y / 1 / 3 }), sys_days{ 2030y / 1 / 2 } + 23h);
    const sys_seconds first = sys_days{ 2030y / 1 / 3 } + 23h;
    EXPECT_EQ(first_instant(skipping, local_days{ 2030y / 1 / 4 }), first);
    for (const auto later : { 0min, 29min, 30min, 31min, 60min }) {
        const auto found = period_at(skipping, Period::day, 1, first + later);
        EXPECT_EQ(found.begin, first) << later.count();
        EXPECT_EQ(found.date, local_days{ 2030y / 1 / 4 }) << later.count();
    }
}

TEST(Calendar, a_policy_without_periods_is_left_alone)
{
    const Policy plain{ Algorithm::fixed_window, { 5, 1h }, {}, {} };
    Policy entered = plain;
    enter_period(entered, 1'800'000'000s);
    EXPECT_EQ(entered, plain);
    EXPECT_EQ(entered.within_period(5s), microseconds{ 5s });
}

Policy daily(const TimeZone& zone, sys_seconds now)
{
    Policy policy{ Algorithm::fixed_window, *parse_calendar_rate("2r/day"), {}, {} };
    policy.calendar = &zone;
    enter_period(policy, now.time_since_epoch());
    return policy;
}

TEST(Calendar, a_request_that_waits_over_the_end_of_its_period_counts_in_it)
{
    const TimeZone utc = zone_of("UTC");
    const sys_seconds end = sys_days{ 2027y / 1 / 2 };
    const Policy policy = daily(utc, end - 1s);
    EXPECT_EQ(policy.begin, (end - 24h).time_since_epoch());
    for (const auto now : { end - 1s, end, end + 48h }) {
        WindowCounts state{ policy.begin.count(), 1, 0 };
        WindowCheck check(state, policy, now.time_since_epoch(), 1);
        const Verdict verdict = check.commit(true);
        EXPECT_TRUE(verdict.granted);
        EXPECT_EQ(verdict.remaining, 0);
        EXPECT_GT(verdict.reset, 0s);
        EXPECT_LE(verdict.reset, 1s);
        WindowCheck third(state, policy, now.time_since_epoch(), 1);
        const Verdict refused = third.commit(true);
        EXPECT_FALSE(refused.granted);
        EXPECT_EQ(refused.retry_after, verdict.reset);
        refund(state, policy, now.time_since_epoch(), { 1, now.time_since_epoch(), 0s });
        EXPECT_EQ(state.current, 1);
    }
}

TEST(Calendar, a_rate_for_periods_is_read_and_written)
{
    for (const char* text : { "1r/day", "10000r/week", "1000000000r/month", "5r/year" }) {
        const auto rate = parse_calendar_rate(text);
        ASSERT_TRUE(rate) << text;
        EXPECT_EQ(rate_text(*rate), text);
        EXPECT_FALSE(parse_rate(text)) << text;
    }
    for (const char* text : { "", "r/day", "0r/day", "1000000001r/month", "1r/days", "1r/Month",
                              "1r/2month", "1r/", "-1r/day", "1 r/day", "1r/d", "5r/none" }) {
        EXPECT_FALSE(parse_calendar_rate(text)) << text;
    }
}

TEST(Calendar, an_override_of_a_period_changes_the_quota_and_keeps_the_count)
{
    const TimeZone utc = zone_of("UTC");
    const Policy zone = daily(utc, sys_days{ 2027y / 1 / 2 });
    const auto override_of = [](const Rate& rate) {
        return Override{ Override::Kind::rate, rate, {}, {} };
    };
    Policy raised = zone;
    apply(override_of(*parse_calendar_rate("20r/day")), raised);
    enter_period(raised, zone.begin);
    EXPECT_EQ(raised.rate.quota, 20);
    EXPECT_EQ(raised.period_number, zone.period_number);
    EXPECT_NE(raised.override_record, 0U) << "of its blocks";
    for (const Rate& rate : { *parse_calendar_rate("20r/month"), *parse_rate("20r/d") }) {
        Policy same = zone;
        apply(override_of(rate), same);
        EXPECT_EQ(same, zone);
    }
    const Policy plain{ Algorithm::fixed_window, { 5, 1h }, {}, {} };
    EXPECT_FALSE(misfit(override_of(*parse_calendar_rate("20r/day")), plain).empty());
    Policy variable = zone;
    variable.rate = {};
    EXPECT_TRUE(misfit(override_of(*parse_calendar_rate("20r/year")), variable).empty());
}

TEST(TimeZone, the_environment_is_as_before_when_one_was_read)
{
    ASSERT_EQ(setenv("TZ", "UTC-3", 1), 0);
    tzset();
    zone_of("America/New_York");
    EXPECT_STREQ(std::getenv("TZ"), "UTC-3");
    const std::time_t now = 1'800'000'000;
    std::tm local{};
    localtime_r(&now, &local);
    EXPECT_EQ(local.tm_gmtoff, 3 * 3600);
    unsetenv("TZ");
    tzset();
}

TEST(TimeZone, names_that_leave_the_folder_are_none)
{
    for (const char* name : { "Europe/Berlin", "UTC", "Etc/GMT+5", "America/Port-au-Prince" }) {
        EXPECT_TRUE(can_be_time_zone(name)) << name;
    }
    for (const char* name :
         { "", "/etc/localtime", "../x", "Europe/../x", "Europe//Berlin", ".", "Europe/", "a b",
           ":UTC", "CET-1CEST,M3.5.0,M10.5.0/3", "Europe/B\n" }) {
        EXPECT_FALSE(can_be_time_zone(name)) << name;
    }
    EXPECT_FALSE(can_be_time_zone(std::string(65, 'a')));
}

TEST(TimeZone, what_is_no_zone_of_this_machine_is_an_error)
{
    TimeZone zone;
    for (const char* name : { "Europe/Brelin", "Europe", "zone.tab", "UTC-3", "../zoneinfo/UTC" }) {
        EXPECT_EQ(read_time_zone(name, zone), TimeZoneError::unknown) << name;
    }
    ASSERT_EQ(setenv("TZDIR", "/nonexistent", 1), 0);
    EXPECT_EQ(read_time_zone("Europe/Berlin", zone), TimeZoneError::no_data);
    EXPECT_EQ(read_time_zone("UTC", zone), TimeZoneError::none);
    unsetenv("TZDIR");
}

}  // namespace
}  // namespace ratelimit
