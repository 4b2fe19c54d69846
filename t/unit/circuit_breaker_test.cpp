#include "redis/circuit_breaker.h"

#include <gtest/gtest.h>

namespace ratelimit::redis {
namespace {

using namespace std::chrono_literals;

TEST(CircuitBreaker, opens_after_failures_in_a_row)
{
    CircuitBreaker breaker(3, 1s);
    EXPECT_FALSE(breaker.failed(0ms));
    EXPECT_FALSE(breaker.failed(0ms));
    EXPECT_TRUE(breaker.allows(0ms));
    EXPECT_TRUE(breaker.failed(0ms));
    EXPECT_FALSE(breaker.failed(0ms)) << "it opens once";
    EXPECT_TRUE(breaker.open());
    EXPECT_FALSE(breaker.allows(0ms));
    EXPECT_FALSE(breaker.allows(999ms));
}

TEST(CircuitBreaker, a_success_between_failures_keeps_it_closed)
{
    CircuitBreaker breaker(2, 1s);
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(breaker.failed(0ms));
        breaker.succeeded();
    }
    EXPECT_FALSE(breaker.open());
}

TEST(CircuitBreaker, lets_one_trial_go_in_each_pause)
{
    CircuitBreaker breaker(1, 1s);
    breaker.failed(0ms);
    EXPECT_TRUE(breaker.allows(1s));
    EXPECT_FALSE(breaker.allows(1s));
    EXPECT_FALSE(breaker.allows(1999ms)) << "a trial in flight";
    EXPECT_TRUE(breaker.allows(2s)) << "a trial never heard of again";
}

TEST(CircuitBreaker, a_trial_that_fails_begins_the_pause_anew_and_one_that_succeeds_closes_it)
{
    CircuitBreaker breaker(1, 1s);
    breaker.failed(0ms);
    ASSERT_TRUE(breaker.allows(1s));
    breaker.failed(1100ms);
    EXPECT_FALSE(breaker.allows(2s));
    ASSERT_TRUE(breaker.allows(2100ms));
    breaker.succeeded();
    EXPECT_TRUE(breaker.allows(2100ms));
    EXPECT_TRUE(breaker.allows(2100ms));
}

}  // namespace
}  // namespace ratelimit::redis
