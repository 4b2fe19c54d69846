#include "limit/policy.h"
#include "limit/rate_text.h"
#include "limit/refill_time.h"

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
    for (std::size_t i = 0; i < algorithm_count; ++i) {
        const auto algorithm = static_cast<Algorithm>(i);
        if (algorithm != Algorithm::concurrency) {
            EXPECT_EQ(algorithm_named(name_of(algorithm)), algorithm);
        }
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
