// The history of a zone, on nginx's slab memory, by a clock of the test's own.

#include "slab_zone.h"

#include <algorithm>
#include <optional>

namespace ratelimit {
namespace {

constexpr time_t start = 1'700'000'100;  // a multiple of both steps
constexpr time_t a_day = 86'400;
constexpr std::size_t large = History::all_series_from;

class HistoryTest : public testing::Test {
protected:
    using Numbers = std::vector<std::optional<std::uint64_t>>;

    /// Counts requests, and rolls the history at this time.
    void at(time_t now, std::uint64_t passed, std::uint64_t refused = 0)
    {
        totals_[History::passed] += passed;
        totals_[History::refused] += refused;
        history().roll(now, totals_);
    }
    /// The steps of a scale; empty: unknown.
    Numbers steps(std::size_t scale, std::size_t series = History::passed)
    {
        Numbers numbers;
        for (const History::Values& values : history().read(scale).values) {
            const bool known = values[series] != History::unknown;
            numbers.push_back(known ? std::optional{ values[series] } : std::nullopt);
        }
        return numbers;
    }
    /// The highest uses in the steps of a scale; empty: unknown.
    Numbers uses(std::size_t scale)
    {
        Numbers numbers;
        for (const std::uint8_t use : history().read(scale).highest_use) {
            numbers.push_back(
                use == History::unknown_use ? std::nullopt : std::optional<std::uint64_t>{ use });
        }
        return numbers;
    }
    time_t begin(std::size_t scale) { return history().read(scale).start; }
    History history() { return zone_.memory().history(); }

    static constexpr std::nullopt_t none = std::nullopt;

    TestZone zone_{ large };
    History::Values totals_{};
};

TEST_F(HistoryTest, a_new_zone_knows_nothing)
{
    EXPECT_EQ(steps(0), Numbers{});
    EXPECT_EQ(steps(1), Numbers{});
}

TEST_F(HistoryTest, requests_are_counted_in_the_steps_of_both_scales)
{
    for (int second = 0; second < 25; ++second) {
        at(start + second, 3, 1);
    }
    EXPECT_EQ(begin(0), start);
    EXPECT_EQ(steps(0), (Numbers{ 30, 30, 15 }));
    EXPECT_EQ(steps(0, History::refused), (Numbers{ 10, 10, 5 }));
    EXPECT_EQ(begin(1), start);
    EXPECT_EQ(steps(1), Numbers{ 75 });
    at(start + 300, 7);
    EXPECT_EQ(steps(1), (Numbers{ 75, 7 }));
}

TEST_F(HistoryTest, an_hour_and_two_days_are_kept)
{
    constexpr time_t seconds = 3 * a_day;
    for (time_t second = 0; second < seconds; second += 10) {
        at(start + second, 10);
    }
    EXPECT_EQ(begin(0), start + seconds - 3600);
    EXPECT_EQ(steps(0), Numbers(360, 10));
    EXPECT_EQ(begin(1), start + seconds - 2 * a_day);
    EXPECT_EQ(steps(1), Numbers(576, 300));
}

TEST_F(HistoryTest, several_workers_count_each_request_once)
{
    at(start, 5);
    History::Values newer = totals_;
    newer[History::passed] += 2;
    history().roll(start + 1, newer);
    history().roll(start + 1, totals_);  // read before the other worker's
    EXPECT_EQ(steps(0), Numbers{ 7 });
    totals_ = newer;
    at(start + 2, 1);
    EXPECT_EQ(steps(0), Numbers{ 8 });
}

TEST_F(HistoryTest, a_worker_has_nothing_to_do_twice_in_a_second)
{
    EXPECT_TRUE(history().due(start));
    at(start, 1);
    EXPECT_FALSE(history().due(start));
    EXPECT_TRUE(history().due(start + 1));
}

TEST_F(HistoryTest, steps_without_a_running_worker_are_unknown)
{
    at(start, 1);
    at(start + 40, 2);
    EXPECT_EQ(steps(0), (Numbers{ 1, none, none, none, 2 }));
    at(start + 1000, 3);
    EXPECT_EQ(steps(1), (Numbers{ 3, none, none, 3 }));
    at(start + 400'000, 4);
    EXPECT_EQ(steps(0), Numbers{ 4 }) << "no step is left of those before";
    EXPECT_EQ(steps(1), Numbers{ 4 });
}

TEST_F(HistoryTest, a_clock_that_is_set_back_by_a_minute_changes_no_step)
{
    for (int second = 0; second <= 60; ++second) {
        at(start + second, 1);
    }
    for (int second = 0; second <= 65; ++second) {
        at(start + second, 1);
    }
    EXPECT_EQ(steps(0), (Numbers{ 10, 10, 10, 10, 10, 10, 67 })) << "the newest step goes on";
    EXPECT_EQ(begin(0), start);
}

TEST_F(HistoryTest, a_clock_that_is_set_back_by_more_goes_on_in_the_step_of_its_time)
{
    for (int second = 0; second < 120; ++second) {
        at(start + second, 1);
    }
    at(start + 25, 5, 2);
    EXPECT_EQ(steps(0), (Numbers{ 10, 10, 15 })) << "no step is ahead of the clock";
    EXPECT_EQ(steps(0, History::refused), (Numbers{ 0, 0, 2 }));
    EXPECT_EQ(steps(1), Numbers{ 125 });
    at(start + 35, 4);
    EXPECT_EQ(steps(0), (Numbers{ 10, 10, 15, 4 }));
}

TEST_F(HistoryTest, a_clock_that_is_set_back_by_days_or_ahead_by_years_starts_new_steps)
{
    constexpr time_t year = a_day * 365;
    at(start, 1);
    at(start + year, 2);
    EXPECT_EQ(steps(1), Numbers{ 2 });
    at(start, 3);
    EXPECT_EQ(steps(0), Numbers{ 3 });
    EXPECT_EQ(steps(1), Numbers{ 3 });
    EXPECT_EQ(begin(1), start);
    at(start - 3 * a_day, 4);
    EXPECT_EQ(begin(1), start - 3 * a_day);
    at(1, 5);
    EXPECT_EQ(begin(0), 0) << "the epoch";
    EXPECT_EQ(steps(0), Numbers{ 5 });
}

TEST_F(HistoryTest, a_clock_that_is_set_back_by_an_hour_keeps_the_steps_before_it)
{
    for (time_t minute = 0; minute < 180; ++minute) {
        at(start + 60 * minute, 60);
    }
    at(start + time_t{ 119 } * 60, 1);
    Numbers expected(24, 300);
    expected.back() = 301;
    EXPECT_EQ(steps(1), expected);
    EXPECT_EQ(steps(0), Numbers{ 1 }) << "the hour before it was already forgotten";
}

TEST_F(HistoryTest, large_numbers_are_kept_within_a_two_thousandth)
{
    std::uint64_t second = 0;
    for (std::uint64_t number :
         { 0ULL, 1ULL, 2047ULL, 2048ULL, 2049ULL, 4095ULL, 4097ULL, 65'535ULL, 1'000'003ULL,
           0xFFFF'FFFFULL, 987'654'321'012ULL, 1ULL << 40U }) {
        at(start + static_cast<time_t>(10 * second++), number);
        const auto kept = *steps(0).back();
        EXPECT_NEAR(static_cast<double>(kept), static_cast<double>(number), number / 2048.0);
        EXPECT_TRUE(number > 2047 || kept == number) << number;
    }
    at(start + static_cast<time_t>(10 * second), 1ULL << 50U);
    EXPECT_EQ(steps(0).back(), 1ULL << 40U) << "more than that in a step is not kept";
}

TEST_F(HistoryTest, a_zone_of_128k_also_keeps_what_would_be_refused_or_was_undecided)
{
    totals_ = { 10, 2, 3, 4 };
    history().roll(start, totals_);
    EXPECT_EQ(history().read(0).series, 4U);
    EXPECT_EQ(steps(0, History::would_refuse), Numbers{ 3 });
    EXPECT_EQ(steps(0, History::undecided), Numbers{ 4 });
}

TEST_F(HistoryTest, the_smallest_zone_keeps_a_history_and_counts_its_largest_key_beside_it)
{
    TestZone small(8 * ngx_pagesize);
    for (unsigned second = 0; second < 7200; ++second) {
        small.memory().history().roll(
            start + second, { std::uint64_t{ 5 } * second, std::uint64_t{ 3 } * second, 1, 1 });
    }
    const History::Steps hour = small.memory().history().read(0);
    EXPECT_EQ(hour.series, 2U);
    ASSERT_EQ(hour.values.size(), History::short_steps);
    EXPECT_EQ(hour.values.back(), (History::Values{ 50, 30, 0, 0 }));
    EXPECT_EQ(hour.start, start + 7200 - time_t{ 10 } * History::short_steps);
    EXPECT_EQ(small.memory().history().read(1).values.size(), 24U);

    // The most that the configuration accepts: half of the zone for one key.
    Policy log{ Algorithm::sliding_window_log, { 1, std::chrono::hours{ 24 } }, {}, {} };
    while (LocalLimiter::largest_key(
               { log.algorithm, { log.rate.quota + 1, log.rate.window }, {}, {} })
           <= small.zone().shm.size / 2) {
        ++log.rate.quota;
    }
    ASSERT_GT(log.rate.quota, 100);
    for (std::int64_t i = 1; i <= log.rate.quota; ++i) {
        const microseconds now = std::chrono::seconds{ start } + microseconds{ i };
        ASSERT_EQ(small.decide({ "key", log }, now).remaining, log.rate.quota - i) << i;
    }
    const History::Steps after = small.memory().history().read(0);
    EXPECT_EQ(after.values, hour.values);
}

TEST_F(HistoryTest, a_history_survives_a_worker_that_is_killed_with_the_lock)
{
    at(start, 7);
    ASSERT_NO_FATAL_FAILURE(zone_.in_killed_worker([&] { ZoneLock::lock(zone_.pool()); }));
    at(start + 10, 2);
    EXPECT_EQ(take_log().size(), 1U);
    EXPECT_EQ(steps(0), (Numbers{ 7, 2 }));
    EXPECT_EQ(steps(1), Numbers{ 9 });
}

TEST_F(HistoryTest, a_reload_keeps_the_history)
{
    at(start, 7);
    ngx_shm_zone_t after = zone_.zone();
    EXPECT_EQ(ZoneMemory::init(&after, zone_.zone().data), NGX_OK);
    EXPECT_EQ(ZoneMemory(after).history().read(0).values.size(), 1U);
}

TEST_F(HistoryTest, the_highest_use_is_kept_in_the_long_steps)
{
    history().roll(start, totals_, 40);
    history().roll(start + 100, totals_, 90);
    history().roll(start + 200, totals_, 10);
    EXPECT_EQ(uses(1), (Numbers{ 90 }));
    EXPECT_EQ(uses(0), Numbers{}) << "the short steps have none";
    EXPECT_EQ(history().highest_use(1), 90U);
    history().roll(start + 300, totals_, 30);
    EXPECT_EQ(uses(1), (Numbers{ 90, 30 }));
    EXPECT_EQ(history().highest_use(0), 30U);
    EXPECT_EQ(history().highest_use(1), 90U);
    history().roll(start + 1200, totals_, 500);
    EXPECT_EQ(uses(1), (Numbers{ 90, 30, none, none, 100 })) << "a pause is unknown";
    EXPECT_EQ(history().highest_use(1), 100U);
    history().roll(start + 1500, totals_);
    history().roll(start + 1800, totals_);
    EXPECT_EQ(history().highest_use(1), 0U);
    EXPECT_EQ(history().highest_use(INT64_MAX), 100U);
}

TEST_F(HistoryTest, the_highest_use_of_two_days_ago_does_not_come_back)
{
    history().roll(start, totals_, 80);
    history().roll(start + 2 * a_day, totals_, 5);
    EXPECT_EQ(uses(1).back(), 5U);
    EXPECT_EQ(history().highest_use(INT64_MAX), 5U);
}

TEST_F(HistoryTest, a_clock_that_is_set_back_leaves_the_highest_use_of_a_step_that_goes_on)
{
    history().roll(start, totals_, 80);
    history().roll(start + 400, totals_, 70);
    history().roll(start + 100, totals_, 20);
    EXPECT_EQ(uses(1), (Numbers{ 80 }));
}

TEST(HistoryOfASmallZone, has_the_highest_use)
{
    TestZone small{ 64 * 1024 };
    History history = small.memory().history();
    history.roll(start, {}, 55);
    EXPECT_EQ(history.highest_use(0), 55U);
    EXPECT_EQ(history.read(0).highest_use.size(), 0U);
    EXPECT_EQ(history.read(1).highest_use.back(), 55U);
}

TEST(HighestUse, is_that_of_all_workers_since_it_was_taken)
{
    TestZone zone{ large };
    ZoneCounters counters = zone.memory().counters();
    EXPECT_EQ(counters.take_highest_use(), 0U);
    counters.used(30);
    counters.used(70);
    counters.used(50);
    EXPECT_EQ(counters.take_highest_use(), 70U);
    EXPECT_EQ(counters.take_highest_use(), 0U);
}

}  // namespace
}  // namespace ratelimit
