// Runs of refusals in the log, on nginx's slab memory.

#include "slab_zone.h"

namespace ratelimit {
namespace {

using Kind = LogRuns::Kind;

class LogRunsTest : public testing::Test {
protected:
    static constexpr ngx_msec_t start = 5'000'000;

    /// A refusal; true if it starts a line.
    bool refuse(std::string_view key, ngx_msec_t now = start, Kind kind = Kind::refused)
    {
        return runs_.begin(key, kind, NGX_LOG_ERR, true, now).run;
    }
    /// The runs that a sweep ends, as "key: count".
    std::vector<std::string> swept(ngx_msec_t now)
    {
        std::vector<std::string> all;
        std::optional<LogRuns::Ended> ended;
        for (int i = 0; i < 1000 && runs_.sweep(now, ended); ++i) {
            if (ended) {
                all.push_back(std::string(ended->key()) + ": " + std::to_string(ended->count));
            }
        }
        return all;
    }

    TestZone zone_;
    LogRuns runs_ = zone_.memory().log_runs();
};

TEST_F(LogRunsTest, a_flood_is_one_line_at_its_beginning_and_one_at_its_end)
{
    EXPECT_TRUE(runs_.empty());
    EXPECT_TRUE(refuse("key"));
    EXPECT_FALSE(runs_.empty());
    for (ngx_msec_t i = 1; i < 100; ++i) {
        EXPECT_FALSE(refuse("key", start + 20 * i));
    }
    const auto ended = runs_.let_in("key", Kind::refused, start + 3000);
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->key(), "key");
    EXPECT_EQ(ended->count, 100U);
    EXPECT_EQ(ended->kind, Kind::refused);
    EXPECT_EQ(ended->level, NGX_LOG_ERR);
    EXPECT_TRUE(runs_.empty());
    EXPECT_FALSE(runs_.let_in("key", Kind::refused, start + 3000));
}

TEST_F(LogRunsTest, a_key_that_is_refused_and_admitted_in_turn_has_one_run)
{
    EXPECT_TRUE(refuse("key"));
    for (ngx_msec_t i = 1; i < 10; ++i) {
        EXPECT_FALSE(runs_.let_in("key", Kind::refused, start + 90 * i));
        EXPECT_TRUE(swept(start + 90 * i).empty());
        EXPECT_FALSE(refuse("key", start + 90 * i));
    }
    EXPECT_FALSE(runs_.let_in("key", Kind::refused, start + 900));
    EXPECT_TRUE(swept(start + 1899).empty());
    EXPECT_EQ(swept(start + 1900), std::vector<std::string>{ "key: 10" });
}

TEST_F(LogRunsTest, a_run_ends_after_a_minute_without_a_request)
{
    refuse("key");
    refuse("key", start + 30'000);
    EXPECT_TRUE(swept(start + 89'999).empty());
    EXPECT_EQ(swept(start + 90'000), std::vector<std::string>{ "key: 2" });
}

TEST_F(LogRunsTest, refusals_and_delays_of_a_key_are_different_runs)
{
    EXPECT_TRUE(refuse("key"));
    EXPECT_TRUE(refuse("key", start, Kind::delayed));
    EXPECT_EQ(runs_.let_in("key", Kind::delayed, start + 1000)->kind, Kind::delayed);
    EXPECT_FALSE(refuse("key"));
}

TEST_F(LogRunsTest, a_run_that_the_log_does_not_show_has_no_line_at_its_end)
{
    EXPECT_FALSE(runs_.begin("key", Kind::refused, NGX_LOG_INFO, false, start).run);
    EXPECT_FALSE(runs_.let_in("key", Kind::refused, start + 2000));
    EXPECT_TRUE(runs_.empty());
}

TEST_F(LogRunsTest, at_most_a_hundred_runs_a_second_are_named_and_the_rest_are_a_number)
{
    ngx_uint_t lines = 0;
    ngx_uint_t unnamed = 0;
    for (int i = 0; i < 150; ++i) {
        const auto to_log =
            runs_.begin("key " + std::to_string(i), Kind::refused, NGX_LOG_ERR, true, start);
        lines += to_log.run ? 1 : 0;
        unnamed += to_log.unnamed;
    }
    EXPECT_EQ(lines, LogRuns::lines_a_second);
    for (int i = 0; i < 30; ++i) {
        unnamed += runs_.begin("more " + std::to_string(i), Kind::refused, NGX_LOG_ERR, true, start)
                       .unnamed;
    }
    unnamed += runs_.pop_unnamed(Kind::refused, start + 500).keys;
    EXPECT_LT(unnamed, 80U) << "the number is logged once a second";
    const auto rest = runs_.pop_unnamed(Kind::refused, start + 1000);
    EXPECT_EQ(rest.level, NGX_LOG_ERR);
    EXPECT_EQ(unnamed + rest.keys, 80U);
    EXPECT_EQ(runs_.pop_unnamed(Kind::refused, start + 2000).keys, 0U);

    EXPECT_TRUE(refuse("key 149", start + 1000)) << "the next second has lines again";
    EXPECT_TRUE(refuse("delayed", start, Kind::delayed)) << "delays have their own lines";
}

TEST_F(LogRunsTest, at_most_a_hundred_ends_a_second_are_logged_and_the_rest_wait)
{
    for (ngx_msec_t i = 0; i < 150; ++i) {
        ASSERT_TRUE(refuse("key " + std::to_string(i), start + i / 75 * 1000));
    }
    EXPECT_EQ(swept(start + 70'000).size(), LogRuns::lines_a_second);
    EXPECT_TRUE(swept(start + 70'500).empty());
    EXPECT_EQ(swept(start + 71'000).size(), 50U);
    EXPECT_TRUE(runs_.empty());
}

TEST_F(LogRunsTest, full_memory_evicts_the_oldest_run_and_logs_its_end)
{
    ASSERT_TRUE(refuse("first"));
    ASSERT_TRUE(refuse("second"));
    ASSERT_FALSE(runs_.let_in("first", Kind::refused, start + 1));
    std::vector<std::string> forgotten;
    for (int i = 0; i < 1000; ++i) {
        const auto to_log =
            runs_.begin("key " + std::to_string(i), Kind::refused, NGX_LOG_ERR, true, start + 2);
        if (to_log.forgotten) {
            forgotten.emplace_back(to_log.forgotten->key());
        }
    }
    ASSERT_GE(forgotten.size(), 2U);
    EXPECT_EQ(forgotten[0], "second") << "the other key was admitted later";
    EXPECT_EQ(forgotten[1], "first");
    EXPECT_EQ(zone_.memory().evictions(), 0U) << "runs in the log do not count as evictions";
    EXPECT_EQ(zone_.memory().keys(), 0U);
}

TEST_F(LogRunsTest, the_end_of_the_only_run_is_logged_if_counts_take_its_memory)
{
    ASSERT_TRUE(refuse("a"));
    ASSERT_TRUE(runs_.forget_oldest());
    EXPECT_FALSE(runs_.empty()) << "so that the zone is swept";
    EXPECT_EQ(swept(start), std::vector<std::string>{ "a: 1" });
    EXPECT_TRUE(runs_.empty());
}

TEST_F(LogRunsTest, a_clock_that_was_set_back_does_not_stop_the_lines)
{
    for (int i = 0; i < 150; ++i) {
        refuse("key " + std::to_string(i));
    }
    EXPECT_FALSE(refuse("other", start - 900));
    EXPECT_TRUE(refuse("other", start - 2000));
}

}  // namespace
}  // namespace ratelimit
