// When a lost connection is made again, by a clock of the test's.

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

TEST_F(ReconnectPolicyTest, a_connection_was_of_use_when_it_answered_a_call_or_stood_for_a_while)
{
    make(1000ms);
    EXPECT_FALSE(policy_.proven(1099ms));
    EXPECT_TRUE(policy_.proven(1100ms));
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1100ms), Loss::good);
    make(2000ms);
    policy_.answered();
    EXPECT_TRUE(policy_.proven(2000ms));
    policy_.attempt(3000ms);
    EXPECT_FALSE(policy_.proven(3500ms)) << "not made yet";
}

TEST_F(ReconnectPolicyTest, a_server_that_takes_calls_and_answers_none_refuses_them)
{
    make(1000ms);
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1010ms), Loss::failed) << "once, by chance";
    make(1100ms);
    EXPECT_EQ(policy_.judge(Loss::silent, true, 1110ms), Loss::refused);
    make(1200ms);
    EXPECT_EQ(policy_.judge(Loss::rejected, true, 1210ms), Loss::rejected);
    make(1300ms);
    EXPECT_EQ(policy_.judge(Loss::failed, false, 1310ms), Loss::failed) << "no call was lost";
    policy_.answered();
    make(1400ms);
    EXPECT_EQ(policy_.judge(Loss::failed, true, 1410ms), Loss::failed) << "it has answered one";
}

TEST_F(ReconnectPolicyTest, pauses_double_up_to_a_bound_and_begin_again_after_an_answer)
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
