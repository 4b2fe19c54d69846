#include "client_fixture.h"
#include "redis/takeover_window.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

TEST(TakeoverWindow, a_call_waits_for_its_timeout_and_no_longer_than_until_its_own_deadline)
{
    redis::TakeoverWindow window;
    EchoCall patient("x");
    patient.routing.expires = 10s;
    EXPECT_TRUE(window.admits(patient, 100ms, 1s));
    EXPECT_EQ(patient.routing.expires, 1100ms);
    EXPECT_TRUE(window.admits(patient, 1099ms, 1s)) << "the time of the first wait counts";
    EXPECT_FALSE(window.admits(patient, 1100ms, 1s));
    EchoCall late("x");
    late.routing.expires = 150ms;
    EXPECT_TRUE(window.admits(late, 100ms, 1s));
    EXPECT_EQ(late.routing.expires, 150ms);
    EXPECT_FALSE(window.admits(late, 150ms, 1s));
}

TEST(TakeoverWindow, is_open_for_half_a_minute_and_again_after_some_quiet)
{
    redis::TakeoverWindow window;
    EchoCall first("x");
    first.routing.expires = 1h;
    EXPECT_TRUE(window.admits(first, 1s, 1h));
    EXPECT_TRUE(window.is_open(30s));
    EXPECT_FALSE(window.is_open(31s));
    EchoCall second("x");
    second.routing.expires = 1h;
    EXPECT_TRUE(window.admits(second, 40s, 1h)) << "another takeover";
    EXPECT_TRUE(window.is_open(69s));
}

}  // namespace
}  // namespace ratelimit
