#include "all_algorithms.h"
#include "limit/policy.h"
#include "limit/rate_text.h"
#include "limit/refill_time.h"
#include "limit/reserve.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

TEST(RateText, reads_a_quota_and_its_window)
{
    EXPECT_EQ(parse_rate("100r/s"), (Rate{ 100, 1s }));
    EXPECT_EQ(parse_rate("5r/10s"), (Rate{ 5, 10s }));
    EXPECT_EQ(parse_rate("1000r/15m"), (Rate{ 1000, 15min }));
    EXPECT_EQ(parse_rate("1r/h"), (Rate{ 1, 1h }));
    EXPECT_EQ(parse_rate("1r/d"), (Rate{ 1, 24h }));
    EXPECT_EQ(parse_rate("1000000000r/366d"), (Rate{ 1'000'000'000, 366 * 24h }));
}

TEST(RateText, rejects_malformed_rates)
{
    for (const char* text : { "",
                              "r/s",
                              "0r/s",
                              "-1r/s",
                              "+1r/s",
                              "1",
                              "1r",
                              "1r/",
                              "1r/x",
                              "1r/0s",
                              "1r/-1s",
                              "1r/10",
                              "1.5r/s",
                              "1 r/s",
                              "1r/s ",
                              " 1r/s",
                              "1R/s",
                              "1r/S",
                              "1000000001r/s",
                              "1r/367d",
                              "99999999999999999999r/s",
                              "1r/99999999999999999999s",
                              "1r/1s1s" }) {
        EXPECT_FALSE(parse_rate(text)) << text;
    }
    EXPECT_FALSE(parse_rate(std::string_view("1r/s\0", 5)));
}

TEST(RateText, reads_times_of_whole_seconds)
{
    EXPECT_EQ(parse_seconds("1"), 1s);
    EXPECT_EQ(parse_seconds("10s"), 10s);
    EXPECT_EQ(parse_seconds("2m"), 2min);
    for (const char* text : { "", "s", "0", "0s", "1ms", "1.5s", "-1s" }) {
        EXPECT_FALSE(parse_seconds(text)) << text;
    }
}

TEST(RateText, rejects_numbers_outside_their_range)
{
    EXPECT_EQ(parse_number("0", 0, 5), 0);
    EXPECT_EQ(parse_number("5", 0, 5), 5);
    EXPECT_FALSE(parse_number("6", 0, 5));
    EXPECT_FALSE(parse_number("0", 1, 5));
    EXPECT_FALSE(parse_number("-0", 0, 5));
    EXPECT_FALSE(parse_number("1x", 0, 5));
}

TEST(Policy, knows_every_algorithm_by_its_name)
{
    for (const Algorithm algorithm : rate_algorithms) {
        EXPECT_EQ(algorithm_named(name_of(algorithm)), algorithm);
    }
    EXPECT_FALSE(algorithm_named("concurrency"));  // a parameter of its own
    EXPECT_FALSE(algorithm_named("GCRA"));
    EXPECT_FALSE(algorithm_named(""));
}

TEST(Policy, limit_is_the_most_that_can_ever_remain)
{
    Policy policy{ Algorithm::fixed_window, { 10, 60s }, {}, {} };
    EXPECT_EQ(policy.limit(), 10);

    policy.algorithm = Algorithm::token_bucket;
    EXPECT_EQ(policy.limit(), 10);
    policy.burst = 25;
    EXPECT_EQ(policy.limit(), 25);

    for (const auto algorithm : { Algorithm::gcra, Algorithm::leaky_bucket }) {
        policy = { algorithm, { 10, 60s }, {}, {} };
        EXPECT_EQ(policy.limit(), 1);
        policy.burst = 4;
        EXPECT_EQ(policy.limit(), 5);
    }
}

TEST(Policy, a_reserve_is_not_for_its_own_requests)
{
    Policy policy{ Algorithm::gcra, { 10, 60s }, 9, {} };
    policy.reserve = 3;
    EXPECT_EQ(policy.limit(), 7);
    EXPECT_EQ(policy.whole(), 10);
    for (const std::int64_t all : { 10, 11, 1'000'000'000 }) {
        policy.reserve = all;
        EXPECT_EQ(policy.limit(), 0);
        EXPECT_TRUE(policy.possible()) << "for other requests";
    }
}

TEST(Reserve, is_a_share_that_is_rounded_up_or_a_number)
{
    EXPECT_EQ(parse_reserve("20%")->of(100), 20);
    EXPECT_EQ(parse_reserve("20%")->of(101), 21);
    EXPECT_EQ(parse_reserve("1%")->of(1), 1);
    EXPECT_EQ(parse_reserve("0%")->of(1'000'000'000), 0);
    EXPECT_EQ(parse_reserve("99%")->of(1'000'000'001), 990'000'001);
    EXPECT_EQ(parse_reserve("100%")->of(7), 7);
    EXPECT_EQ(parse_reserve("20")->of(100), 20);
    EXPECT_EQ(parse_reserve("20")->of(7), 20);
    EXPECT_EQ(parse_reserve("1000000000")->of(7), 1'000'000'000);
    for (const char* text : { "20%", "0%", "20", "0" }) {
        EXPECT_EQ(parse_reserve(text)->text(), text);
    }
    for (const char* text : { "", "%", "%%", "101%", "1000000001", "-1", "-1%", "+1", "1.5%",
                              "20 %", " 20%", "20%%", "x", "20r" }) {
        EXPECT_FALSE(parse_reserve(text)) << text;
    }
}

TEST(Policy, buckets_are_a_sixtieth_of_the_window_and_at_least_a_second)
{
    Policy policy{ Algorithm::sliding_window_buckets, { 10, 1h }, {}, {} };
    EXPECT_EQ(policy.bucket_width(), 1min);
    policy.rate.window = 10s;
    EXPECT_EQ(policy.bucket_width(), 1s);
    policy.precision = 5s;
    EXPECT_EQ(policy.bucket_width(), 5s);
    policy.rate.window = 2s;  // a variable rate below the precision
    EXPECT_EQ(policy.bucket_width(), 2s);
}

TEST(RefillTime, is_exact_for_any_quota_and_window)
{
    EXPECT_EQ(refill_time_ceil(3, { 10, 60s }), 18s);
    EXPECT_EQ(refill_time_floor(3, { 10, 60s }), 18s);
    EXPECT_EQ(refill_time_ceil(1, { 3, 10s }), 3'333'334us);
    EXPECT_EQ(refill_time_floor(1, { 3, 10s }), 3'333'333us);
    EXPECT_EQ(refill_time_ceil(0, { 3, 10s }), 0us);
    EXPECT_EQ(refill_time_floor(0, { 3, 10s }), 0us);
    // The product is above 2^53.
    EXPECT_EQ(refill_time_floor(999'999'937, { 999'999'999, 366 * 24h }), 31'622'398'039'411us);
    EXPECT_EQ(refill_time_ceil(999'999'937, { 999'999'999, 366 * 24h }), 31'622'398'039'412us);
}

TEST(RefillTime, that_exceeds_64_bits_is_the_maximum)
{
    EXPECT_EQ(refill_time_ceil(1'000'000'000, { 1, 366 * 24h }), microseconds::max());
    EXPECT_EQ(refill_time_floor(1'000'000'000, { 1, 366 * 24h }), microseconds::max());
    EXPECT_EQ(refill_time_ceil(1, {}), microseconds::max());
}

}  // namespace
}  // namespace ratelimit
