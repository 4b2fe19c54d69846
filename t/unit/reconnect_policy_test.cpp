// When a lost connection is made again, by a clock that the test sets.

#include "redis/reconnect_policy.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using redis::Loss;
using std::chrono::milliseconds;

class ReconnectPolicyTest : public testing::Test {
protected:
    /// A connection that was made at this time.
    void make(milliseconds now)
    {
        policy_.attempt(now);
        policy_.ready(now);
    }

    redis::ReconnectPolicy policy_;
};

TEST_F(ReconnectPolicyTest, a_connection_is_proven_after_a_reply_or_a_hundred_milliseconds)
{
    make(1000ms);
    EXPECT_FALSE(policy_.proven(1099ms));
    EXPECT_TRUE(policy_.proven(1100ms));
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1100ms), Loss::good);
    make(2000ms);
    policy_.answered();
    EXPECT_TRUE(policy_.proven(2000ms));
    policy_.attempt(3000ms);
    EXPECT_FALSE(policy_.proven(3500ms)) << "not connected yet";
}

TEST_F(
    ReconnectPolicyTest,
    a_connection_that_is_closed_unused_is_made_again_a_few_times_after_one_of_use)
{
    policy_.accepted();
    EXPECT_EQ(policy_.judge(Loss::failed, false, 1000ms), Loss::failed) << "none was of use";
    make(1000ms);
    policy_.answered();
    EXPECT_EQ(policy_.judge(Loss::failed, false, 1005ms), Loss::good);
    policy_.attempt(1010ms);
    EXPECT_EQ(policy_.judge(Loss::failed, false, 1010ms), Loss::failed) << "not accepted";
    policy_.accepted();
    EXPECT_EQ(policy_.judge(Loss::rejected, false, 1010ms), Loss::rejected);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(policy_.judge(Loss::failed, true, 1010ms), Loss::good);
    }
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1010ms), Loss::failed);
}

TEST_F(ReconnectPolicyTest, a_server_that_loses_calls_twice_in_a_row_without_a_reply_refuses_them)
{
    make(1000ms);
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1010ms), Loss::failed) << "the first time";
    make(1100ms);
    EXPECT_EQ(policy_.judge(Loss::silent, true, 1110ms), Loss::refused);
    make(1200ms);
    EXPECT_EQ(policy_.judge(Loss::rejected, true, 1210ms), Loss::rejected);
    make(1300ms);
    EXPECT_EQ(policy_.judge(Loss::failed, false, 1310ms), Loss::failed) << "no call was lost";
    policy_.answered();
    make(1400ms);
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1410ms), Loss::failed)
        << "it has answered a call before";
}

TEST_F(ReconnectPolicyTest, pauses_double_up_to_a_bound_and_start_over_after_a_reply)
{
    milliseconds full = 50ms;
    for (int i = 0; i < 6; ++i) {
        const auto pause = policy_.pause(false, 1000ms);
        EXPECT_GE(pause, full / 2);
        EXPECT_LE(pause, full);
        full = std::min(full * 2, milliseconds{ 500 });
    }
    policy_.answered();
    EXPECT_LE(policy_.pause(false, 1000ms), 50ms);
}

TEST_F(ReconnectPolicyTest, a_silent_server_is_tried_every_hundred_milliseconds)
{
    policy_.attempt(1000ms);
    EXPECT_EQ(policy_.pause(true, 1030ms), 70ms);
    EXPECT_EQ(policy_.pause(true, 1250ms), 0ms);
}

}  // namespace
}  // namespace ratelimit
