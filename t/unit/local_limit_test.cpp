// Edge cases of decisions in a node's memory, in numbers that can be checked by hand.

#include "local_limit.h"
#include "trace_maker.h"

#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr std::int64_t noon = start_of_traces;  // the start of a window, minute and hour
constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

class LocalLimits : public testing::Test {
protected:
    Verdict answer(const Policy& policy, std::int64_t now, std::int64_t cost)
    {
        auto check = limit_.check(policy, now, cost);
        const auto state = commit(check, true);
        life_ = life(check);
        return state;
    }
    std::string ask(const Policy& policy, std::int64_t now, std::int64_t cost = 1)
    {
        return text_of(answer(policy, now, cost));
    }
    static std::string passed(std::int64_t remaining, std::int64_t reset)
    {
        return text_of({ true, remaining, microseconds{ reset }, microseconds{ 0 } });
    }
    static std::string refused(std::int64_t remaining, std::int64_t reset, std::int64_t retry)
    {
        return text_of({ false, remaining, microseconds{ reset }, microseconds{ retry } });
    }
    static std::string never(std::int64_t remaining, std::int64_t reset)
    {
        return text_of({ false, remaining, microseconds{ reset }, std::nullopt });
    }

    LocalLimit limit_;
    std::int64_t life_ = 0;
};

TEST_F(LocalLimits, gcra_admits_the_burst_and_then_one_request_each_interval)
{
    const Policy policy{ Algorithm::gcra, { 2, seconds{ 60 } }, 1, {} };
    EXPECT_EQ(ask(policy, noon), passed(1, 30 * second));
    EXPECT_EQ(ask(policy, noon), passed(0, 60 * second));
    EXPECT_EQ(life_, 60 * second);
    EXPECT_EQ(ask(policy, noon), refused(0, 60 * second, 30 * second));
    EXPECT_EQ(ask(policy, noon + 30 * second - 1), refused(0, 30 * second + 1, 1));
    EXPECT_EQ(ask(policy, noon + 30 * second), passed(0, 60 * second));
    EXPECT_EQ(ask(policy, noon + 30 * second, 3), never(0, 60 * second));
    EXPECT_EQ(ask(policy, noon + 90 * second, 0), passed(2, 0));
    EXPECT_EQ(life_, 0);
}

TEST_F(LocalLimits, gcra_keeps_fractions_of_a_microsecond)
{
    const Policy policy{ Algorithm::token_bucket, { 3, seconds{ 1 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon), passed(2, 333'334));
    EXPECT_EQ(limit_.arrival_time, (ArrivalTime{ noon + 333'333, 1, noon }));
    EXPECT_EQ(life_, 333'334);
    EXPECT_EQ(ask(policy, noon), passed(1, 666'667));
    EXPECT_EQ(ask(policy, noon), passed(0, 1'000'000));
    EXPECT_EQ(limit_.arrival_time, (ArrivalTime{ noon + 1'000'000, 0, noon }));
}

TEST_F(LocalLimits, gcra_keeps_the_debt_of_a_larger_burst_when_a_smaller_one_refuses)
{
    const Policy large{ Algorithm::token_bucket, { 10, seconds{ 10 } }, 10, {} };
    const Policy small{ Algorithm::token_bucket, { 10, seconds{ 10 } }, 4, {} };
    EXPECT_EQ(ask(large, noon, 10), passed(0, 10 * second));
    EXPECT_EQ(ask(small, noon, 0), passed(0, 10 * second));
    EXPECT_EQ(ask(small, noon), refused(0, 10 * second, 7 * second));
    EXPECT_EQ(life_, 10 * second);
    EXPECT_EQ(ask(large, noon), refused(0, 10 * second, second));
    EXPECT_EQ(ask(small, noon + 7 * second - 1), refused(0, 3 * second + 1, 1));
    EXPECT_EQ(ask(small, noon + 7 * second), passed(0, 4 * second));
    EXPECT_EQ(ask(large, noon + 7 * second, 0), passed(6, 4 * second));
}

TEST_F(
    LocalLimits,
    gcra_keeps_the_debt_but_not_the_time_when_the_clock_steps_back_further_than_a_window)
{
    const Policy large{ Algorithm::token_bucket, { 10, seconds{ 10 } }, 20, {} };
    const Policy small{ Algorithm::token_bucket, { 10, seconds{ 10 } }, 4, {} };
    EXPECT_EQ(ask(large, noon, 20), passed(0, 20 * second));
    const std::int64_t waiting = noon - 10 * second;
    EXPECT_EQ(ask(large, waiting), refused(0, 30 * second, 11 * second))
        << "a window behind: the stored time counts";
    const std::int64_t earlier = waiting - 1;
    EXPECT_EQ(ask(small, earlier, 0), passed(0, 20 * second));
    EXPECT_EQ(limit_.arrival_time.latest, noon) << "a peek writes nothing";
    EXPECT_EQ(ask(small, earlier), refused(0, 20 * second, 17 * second));
    EXPECT_EQ(limit_.arrival_time, (ArrivalTime{ earlier + 20 * second, 0, earlier }));
    EXPECT_EQ(ask(large, earlier + second), passed(0, 20 * second));
}

TEST_F(LocalLimits, the_highest_costs_do_not_overflow)
{
    for (const Algorithm algorithm : all_algorithms) {
        limit_ = {};
        const Policy policy{ algorithm, { 1'000'000'000, hours{ 24 * 366 } }, {}, {} };
        const auto limit = policy.limit();
        EXPECT_TRUE(answer(policy, noon, limit).granted) << name_of(policy.algorithm);
        const auto state = answer(policy, noon, huge);
        EXPECT_FALSE(state.granted || state.retry_after || state.remaining > 0);
        EXPECT_GT(*answer(policy, noon, limit).retry_after, microseconds{ 0 });
    }
}

TEST_F(LocalLimits, a_burst_is_limited_to_142_years)
{
    const Policy policy{ Algorithm::gcra, { 1, hours{ 24 * 366 } }, 1'000'000'000, {} };
    EXPECT_FALSE(policy.burst_fits());
    EXPECT_EQ(policy.limit(), 142);
    const auto state = answer(policy, noon, 142);
    EXPECT_TRUE(state.granted);
    EXPECT_EQ(state.reset, 142 * policy.rate.window);
    EXPECT_FALSE(answer(policy, noon, 143).retry_after) << "never";
}

TEST_F(LocalLimits, a_fixed_window_ends_with_its_last_microsecond)
{
    const Policy policy{ Algorithm::fixed_window, { 2, seconds{ 10 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon + 10 * second - 1, 2), passed(0, 1));
    EXPECT_EQ(life_, 1);
    EXPECT_EQ(ask(policy, noon + 10 * second - 1), refused(0, 1, 1));
    EXPECT_EQ(ask(policy, noon + 10 * second), passed(1, 10 * second));
}

TEST_F(LocalLimits, a_clock_up_to_a_window_behind_is_ignored_and_one_further_behind_is_adopted)
{
    const Policy policy{ Algorithm::fixed_window, { 3, seconds{ 10 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon + 10 * second), passed(2, 10 * second));
    EXPECT_EQ(ask(policy, noon), passed(1, 20 * second));
    EXPECT_EQ(life_, 20 * second) << "until that window ends by the clock that is behind";
    EXPECT_EQ(limit_.window_counts.start, noon + 10 * second);
    EXPECT_EQ(ask(policy, noon + 1, 2), refused(1, 20 * second - 1, 20 * second - 1));

    EXPECT_EQ(ask(policy, noon - 1, 0), passed(1, 1));
    EXPECT_EQ(limit_.window_counts.start, noon + 10 * second) << "a peek writes nothing";
    EXPECT_EQ(ask(policy, noon - 1), passed(0, 1));
    EXPECT_EQ(limit_.window_counts, (WindowCounts{ noon - 10 * second, 3, 0 }));
}

TEST_F(LocalLimits, the_previous_window_counts_by_its_overlap_with_the_sliding_window)
{
    const Policy policy{ Algorithm::sliding_window_counter, { 10, seconds{ 10 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon, 10), passed(0, 19 * second + 1));
    EXPECT_EQ(life_, 20 * second);
    EXPECT_EQ(ask(policy, noon), refused(0, 19 * second + 1, 10 * second + 1));
    EXPECT_EQ(ask(policy, noon + 10 * second), refused(0, 9 * second + 1, 1));
    EXPECT_EQ(ask(policy, noon + 10 * second + 1), passed(0, 10 * second));
}

TEST_F(LocalLimits, a_log_has_one_entry_for_each_microsecond)
{
    const Policy policy{ Algorithm::sliding_window_log, { 1'000'000'000, seconds{ 10 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon, 400'000'000), passed(600'000'000, 10 * second));
    EXPECT_EQ(ask(policy, noon, 500'000'000), passed(100'000'000, 10 * second));
    EXPECT_EQ(ask(policy, noon + 1, 100'000'000), passed(0, 10 * second));
    EXPECT_EQ(limit_.entries.size(), 2U);
    EXPECT_EQ(limit_.total, 1'000'000'000);
    EXPECT_EQ(ask(policy, noon + 2, 900'000'000), refused(0, 10 * second - 1, 10 * second - 2));
    EXPECT_EQ(ask(policy, noon + 2, 900'000'001), refused(0, 10 * second - 1, 10 * second - 1));
    EXPECT_EQ(ask(policy, noon + 10 * second - 1), refused(0, 2, 1))
        << "the last microsecond of the window";
    EXPECT_EQ(ask(policy, noon + 10 * second), passed(899'999'999, 10 * second));
    EXPECT_EQ(limit_.entries.size(), 2U);
}

TEST_F(
    LocalLimits, expired_entries_count_again_when_the_clock_steps_back_unless_one_was_added_since)
{
    const Policy policy{ Algorithm::sliding_window_log, { 3, seconds{ 10 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon, 2), passed(1, 10 * second));
    EXPECT_EQ(ask(policy, noon + 10 * second, 0), passed(3, 0));
    EXPECT_EQ(life_, 0);
    EXPECT_EQ(ask(policy, noon + 9 * second, 2), refused(1, second, second));
    EXPECT_EQ(ask(policy, noon + 10 * second, 2), passed(1, 10 * second));
    EXPECT_EQ(ask(policy, noon + 9 * second, 2), refused(1, 11 * second, 11 * second))
        << "decided at the newest entry's time";
}

TEST_F(LocalLimits, a_bucket_counts_until_its_end_has_left_the_window)
{
    const Policy policy{
        Algorithm::sliding_window_buckets, { 3, seconds{ 60 } }, {}, seconds{ 20 }
    };
    EXPECT_EQ(ask(policy, noon + 19 * second), passed(2, 61 * second));
    EXPECT_EQ(ask(policy, noon + 20 * second), passed(1, 80 * second));
    EXPECT_EQ(ask(policy, noon + 39 * second), passed(0, 61 * second));
    EXPECT_EQ(limit_.entries.size(), 2U);
    EXPECT_EQ(ask(policy, noon + 39 * second), refused(0, 61 * second, 41 * second));
    EXPECT_EQ(ask(policy, noon + 39 * second, 2), refused(0, 61 * second, 61 * second));
    EXPECT_EQ(ask(policy, noon + 80 * second - 1), refused(0, 20 * second + 1, 1));
    EXPECT_EQ(ask(policy, noon + 80 * second), passed(0, 80 * second));
}

TEST_F(LocalLimits, buckets_let_no_more_than_the_quota_pass_in_any_window)
{
    std::minstd_rand random{ 1 };
    const auto any = [&](std::int64_t from, std::int64_t to) {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random);
    };
    for (int trace = 0; trace < 200; ++trace) {
        limit_ = {};
        const std::int64_t window = any(1, 100) * second;
        const std::int64_t quota = any(1, 20);
        const Policy policy{ Algorithm::sliding_window_buckets,
                             { quota, microseconds{ window } },
                             {},
                             microseconds{ any(1, window / second) * second } };
        const std::int64_t width = policy.bucket_width().count();
        std::vector<std::int64_t> passes;
        std::int64_t now = noon;
        for (int step = 0; step < 400; ++step) {
            now += any(0, 3) == 0 ? any(0, window / 4) : any(0, window / 500);
            const auto count = static_cast<std::int64_t>(passes.size());
            TimedCheck check(limit_.entries, limit_.total, policy, microseconds{ now }, 1);
            if (!check.commit(true).granted) {
                ASSERT_GE(count, quota);
                ASSERT_GT(passes[static_cast<std::size_t>(count - quota)], now - window - width)
                    << "a request counts at most a bucket longer than the window";
                continue;
            }
            passes.push_back(now);
            if (count >= quota) {
                ASSERT_LE(passes[static_cast<std::size_t>(count - quota)], now - window)
                    << "more than the quota passed in a window";
            }
        }
    }
}

TEST_F(LocalLimits, a_clock_more_than_a_window_behind_turns_a_log_into_one_entry_without_memory)
{
    const Policy policy{ Algorithm::sliding_window_log, { 3, seconds{ 10 } }, {}, {} };
    for (int i = 0; i < 3; ++i) {
        ask(policy, noon + i);
    }
    limit_.entries.room = 0;
    EXPECT_EQ(ask(policy, noon - 10 * second + 2), refused(0, 20 * second, 20 * second - 2))
        << "less than a window behind: decided at the newest entry's time";
    const std::int64_t earlier = noon - 10 * second + 1;
    EXPECT_EQ(ask(policy, earlier, 0), passed(0, 10 * second));
    EXPECT_EQ(limit_.entries.size(), 3U) << "a peek writes nothing";
    EXPECT_EQ(ask(policy, earlier), refused(0, 10 * second, 10 * second));
    ASSERT_EQ(limit_.entries.size(), 1U);
    EXPECT_EQ(limit_.entries.front(), (TimedCount{ earlier, 3 }));
    EXPECT_EQ(limit_.total, 3);
}

class LogWithoutMemory : public LocalLimits {};

TEST_F(LogWithoutMemory, reports_it_and_counts_nothing)
{
    const Policy policy{ Algorithm::sliding_window_log, { 3, seconds{ 10 } }, {}, {} };
    limit_.entries.room = 0;
    TimedCheck check(limit_.entries, limit_.total, policy, microseconds{ noon }, 1);
    EXPECT_EQ(text_of(check.commit(true)), passed(3, 0));
    EXPECT_TRUE(check.out_of_memory());
    EXPECT_EQ(check.life(), microseconds{ 0 });
}

TEST_F(LogWithoutMemory, for_all_entries_admits_no_more_than_the_limit)
{
    const Policy policy{ Algorithm::sliding_window_log, { 4, seconds{ 10 } }, {}, {} };
    EXPECT_EQ(ask(policy, noon), passed(3, 10 * second));
    limit_.entries.room = 2;
    EXPECT_EQ(ask(policy, noon + 1), passed(2, 10 * second));
    EXPECT_EQ(ask(policy, noon + 2), passed(1, 10 * second));
    EXPECT_EQ(ask(policy, noon + 3), passed(0, 10 * second)) << "the newest three share an entry";
    EXPECT_EQ(ask(policy, noon + 3), refused(0, 10 * second, 10 * second - 3));
    EXPECT_EQ(ask(policy, noon + 10 * second), passed(0, 10 * second))
        << "in place of the expired one";
    EXPECT_EQ(ask(policy, noon + 10 * second + 2), refused(0, 10 * second - 2, 1));
    EXPECT_EQ(ask(policy, noon + 10 * second + 3), passed(2, 10 * second));
}

TEST_F(LogWithoutMemory, stays_in_order_with_the_right_total)
{
    std::minstd_rand random{ 1 };
    const auto any = [&](std::int64_t from, std::int64_t to) {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random);
    };
    std::int64_t now = noon;
    int failures = 0;
    for (int step = 0; step < 20'000; ++step) {
        const bool log = any(0, 1) == 0;
        const Policy policy{ log ? Algorithm::sliding_window_log
                                 : Algorithm::sliding_window_buckets,
                             { any(1, 40), seconds{ any(1, 60) } },
                             {},
                             seconds{ any(1, 60) } };
        limit_.entries.room = static_cast<std::size_t>(any(0, 12));
        now += any(0, 9) == 0 ? -any(0, 100 * second) : any(0, 5 * second);
        TimedCheck check(limit_.entries, limit_.total, policy, microseconds{ now }, any(0, 5));
        check.commit(any(0, 3) > 0);
        failures += check.out_of_memory() ? 1 : 0;

        std::int64_t last = 0;
        std::int64_t total = 0;
        for (const auto& [time, count] : limit_.entries) {
            ASSERT_GT(time, last) << "step " << step;
            ASSERT_GE(count, 1);
            last = time;
            total += count;
        }
        ASSERT_EQ(limit_.total, total) << "step " << step;
    }
    EXPECT_GT(failures, 50);
}

}  // namespace
}  // namespace ratelimit
