// What a worker knows of the clock of a server of Redis: its time, and that it was set back.

#include "redis/server_clock.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {
namespace {

using namespace std::chrono_literals;

class ServerClockTest : public testing::Test {
protected:
    /// A reply to TIME.
    void show(microseconds time)
    {
        std::string texts[2] = { std::to_string(time.count() / 1'000'000),
                                 std::to_string(time.count() % 1'000'000) };
        redisReply parts[2]{};
        redisReply* elements[2] = { &parts[0], &parts[1] };
        for (int i = 0; i < 2; ++i) {
            parts[i].type = REDIS_REPLY_STRING;
            parts[i].str = texts[i].data();
            parts[i].len = texts[i].size();
        }
        redisReply reply{};
        reply.type = REDIS_REPLY_ARRAY;
        reply.elements = 2;
        reply.element = elements;
        ASSERT_TRUE(clock_.set(reply));
    }

    /// A call that was made `ago` and executed when the clock showed `time`. Its reply is read now.
    void reply(microseconds time, microseconds ago = 0s)
    {
        clock_.note({ now() - ago, time, now() });
    }

    static microseconds now()
    {
        return std::chrono::duration_cast<microseconds>(
            std::chrono::steady_clock::now().time_since_epoch());
    }

    const microseconds noon_{ 1'795'500'000s };
    ServerClock clock_;
};

TEST_F(ServerClockTest, a_clock_that_is_not_known_was_not_set_back)
{
    EXPECT_FALSE(clock_.set_back_within(24h, now()));
    reply(noon_ - 1h);
    EXPECT_FALSE(clock_.set_back_within(24h, now())) << "nothing was known of it before";
    reply(noon_ - 2h);
    EXPECT_TRUE(clock_.set_back_within(24h, now())) << "but now it was";
}

TEST_F(ServerClockTest, a_difference_that_clocks_have_by_drifting_is_no_step)
{
    show(noon_);
    reply(noon_ - 2s);
    EXPECT_FALSE(clock_.set_back_within(24h, now()));
}

TEST_F(ServerClockTest, a_reply_that_waited_for_this_process_is_no_step)
{
    show(noon_);
    reply(noon_ - 10s, 11s);
    EXPECT_FALSE(clock_.set_back_within(24h, now())) << "the process was stopped for ten seconds";
    EXPECT_GE(*clock_.now(), noon_) << "and the reply says nothing of the time now";
}

TEST_F(ServerClockTest, a_reply_shows_that_the_clock_was_set_back)
{
    show(noon_);
    reply(noon_ - 10s);
    EXPECT_TRUE(clock_.set_back_within(24h, now()));
    reply(noon_ - 10s);
    EXPECT_TRUE(clock_.set_back_within(24h, now())) << "also the next reply";
    EXPECT_FALSE(clock_.set_back_within(0s, now())) << "longer ago than that";
    EXPECT_LT(*clock_.now(), noon_) << "it is the time of the server";
}

TEST_F(ServerClockTest, a_step_forward_that_is_taken_back_sets_the_clock_back)
{
    show(noon_);
    reply(noon_ + 9s);
    EXPECT_FALSE(clock_.set_back_within(24h, now())) << "a step forward";
    reply(noon_);
    EXPECT_TRUE(clock_.set_back_within(24h, now()));
}

TEST_F(ServerClockTest, a_new_connection_shows_that_the_clock_was_set_back)
{
    show(noon_);
    show(noon_ - 1h);
    EXPECT_TRUE(clock_.set_back_within(24h, now()));
}

}  // namespace
}  // namespace ratelimit::redis
