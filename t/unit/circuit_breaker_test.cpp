#include "redis/circuit_breaker.h"

#include <gtest/gtest.h>

namespace ratelimit::redis {
namespace {

using namespace std::chrono_literals;

TEST(CircuitBreaker, opens_after_consecutive_timeouts_and_reports_it_once)
{
    CircuitBreaker breaker(3);
    EXPECT_FALSE(breaker.silent(0ms, 100ms));
    EXPECT_FALSE(breaker.silent(100ms, 200ms));
    EXPECT_FALSE(breaker.open());
    EXPECT_TRUE(breaker.silent(200ms, 300ms));
    EXPECT_TRUE(breaker.open());
    EXPECT_FALSE(breaker.silent(300ms, 400ms));
}

TEST(CircuitBreaker, counts_the_timeouts_of_commands_in_flight_together_as_one)
{
    CircuitBreaker breaker(2);
    for (int sent = 0; sent < 100; ++sent) {
        EXPECT_FALSE(breaker.silent(milliseconds{ sent }, milliseconds{ 100 + sent })) << sent;
    }
    EXPECT_TRUE(breaker.silent(100ms, 200ms)) << "sent after the first timeout";
}

TEST(CircuitBreaker, is_closed_by_any_reply)
{
    CircuitBreaker breaker(2);
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(breaker.silent(milliseconds{ i }, milliseconds{ i }));
        breaker.answered();
    }
    breaker.silent(20ms, 30ms);
    EXPECT_TRUE(breaker.silent(30ms, 40ms));
    breaker.answered();
    EXPECT_FALSE(breaker.open());
    EXPECT_FALSE(breaker.silent(40ms, 50ms)) << "the count starts over";
}

}  // namespace
}  // namespace ratelimit::redis
