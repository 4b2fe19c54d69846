#include "zone/outcome.h"

#include <array>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

AppliedLimit limit(std::int64_t quota, std::int64_t remaining)
{
    AppliedLimit decided;
    decided.decided = true;
    decided.policy = { Algorithm::fixed_window, { quota, 60s }, {}, {} };
    decided.state = { true, remaining, 10s, 0us };
    decided.undelayed = 0;
    return decided;
}

AppliedLimit refusing(std::int64_t quota, std::optional<microseconds> retry)
{
    AppliedLimit decided = limit(quota, 0);
    decided.state.granted = false;
    decided.state.retry_after = retry;
    return decided;
}

/// 10r/s; `reset` is the time until the bucket is empty, this request included.
AppliedLimit leaky(microseconds reset, std::optional<std::int64_t> undelayed)
{
    AppliedLimit decided;
    decided.decided = true;
    decided.policy = { Algorithm::leaky_bucket, { 10, 1s }, 20, {} };
    decided.state = { true, 5, reset, 0us };
    decided.undelayed = undelayed;
    return decided;
}

TEST(OutcomeOf, a_request_that_all_limits_grant_passes)
{
    const std::array limits = { limit(10, 5), limit(100, 50) };
    const Outcome outcome = outcome_of(limits);
    EXPECT_FALSE(outcome.refused);
    EXPECT_EQ(outcome.wait, 0us);
    EXPECT_EQ(outcome.retry_after, 0us);
}

TEST(OutcomeOf, the_limit_with_the_smallest_share_left_sets_the_headers)
{
    const std::array limits = { limit(10, 5), limit(100, 20), limit(4, 3) };
    EXPECT_EQ(outcome_of(limits).least_left, 1U);
    EXPECT_EQ(outcome_of(limits).decided_by, 1U);
}

TEST(OutcomeOf, of_limits_with_equal_shares_the_first_sets_the_headers)
{
    const std::array limits = { limit(10, 5), limit(100, 50) };
    EXPECT_EQ(outcome_of(limits).least_left, 0U);
}

TEST(OutcomeOf, of_several_refusals_the_one_with_the_longest_retry_decides)
{
    const std::array limits = { refusing(10, 3s), refusing(10, 7s), refusing(10, 5s) };
    const Outcome outcome = outcome_of(limits);
    EXPECT_TRUE(outcome.refused);
    EXPECT_EQ(outcome.decided_by, 1U);
    EXPECT_EQ(outcome.retry_after, 7s);
}

TEST(OutcomeOf, a_refusal_without_a_retry_time_decides_before_all_others)
{
    const std::array limits = { refusing(10, 3s), refusing(10, std::nullopt), refusing(10, 5s) };
    const Outcome outcome = outcome_of(limits);
    EXPECT_EQ(outcome.decided_by, 1U);
    EXPECT_EQ(outcome.retry_after, std::nullopt);
}

TEST(OutcomeOf, a_refusing_limit_sets_the_headers_before_an_equally_empty_one)
{
    const std::array limits = { limit(10, 0), refusing(10, 3s) };
    EXPECT_EQ(outcome_of(limits).least_left, 1U);
}

TEST(OutcomeOf, a_shadow_limit_neither_refuses_nor_sets_the_headers)
{
    std::array limits = { refusing(10, 3s), limit(10, 9) };
    limits[0].shadow = true;
    const Outcome outcome = outcome_of(limits);
    EXPECT_FALSE(outcome.refused);
    EXPECT_EQ(outcome.least_left, 1U);
    EXPECT_EQ(outcome.decided_by, 1U);
}

TEST(OutcomeOf, a_shadow_limit_does_not_delay)
{
    std::array limits = { leaky(500ms, 0) };
    limits[0].shadow = true;
    EXPECT_EQ(outcome_of(limits).wait, 0us);
}

TEST(Delay, the_first_request_of_an_idle_bucket_is_not_delayed)
{
    EXPECT_EQ(delay_of(leaky(100ms, 0)), 0us);
}

TEST(Delay, each_request_in_the_bucket_adds_an_emission_interval)
{
    EXPECT_EQ(delay_of(leaky(200ms, 0)), 100ms);
    EXPECT_EQ(delay_of(leaky(500ms, 0)), 400ms);
}

TEST(Delay, the_first_delay_requests_are_not_delayed)
{
    EXPECT_EQ(delay_of(leaky(500ms, 4)), 0us);
    EXPECT_EQ(delay_of(leaky(600ms, 4)), 100ms);
}

TEST(Delay, nodelay_delays_no_request)
{
    EXPECT_EQ(delay_of(leaky(2s, std::nullopt)), 0us);
}

TEST(Delay, the_longest_wait_decides)
{
    const std::array limits = { leaky(200ms, 0), leaky(400ms, 0), limit(10, 0) };
    const Outcome outcome = outcome_of(limits);
    EXPECT_EQ(outcome.wait, 300ms);
    EXPECT_EQ(outcome.decided_by, 1U);
    EXPECT_EQ(outcome.least_left, 2U);
}

}  // namespace
}  // namespace ratelimit
