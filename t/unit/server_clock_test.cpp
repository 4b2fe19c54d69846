// What a worker knows of the clock of a server of Redis: its time, and that it was set back.

#include "redis/server_clock.h"
#include "resp_reply.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {
namespace {

using namespace std::chrono_literals;

class ServerClockTest : public testing::Test {
protected:
    /// A reply to TIME, which was called `ago`.
    void show(microseconds time, microseconds ago = 0s)
    {
        const auto reply = reply_of(
            "*2\r\n" + bulk(std::to_string(time.count() / 1'000'000))
            + bulk(std::to_string(time.count() % 1'000'000)));
        ASSERT_TRUE(clock_.set(*reply, now() - ago));
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
    EXPECT_GE(*clock_.at(now()), noon_) << "and the reply says nothing of the time now";
}

TEST_F(ServerClockTest, a_reply_to_time_that_waited_for_this_process_is_no_step)
{
    show(noon_);
    show(noon_ - 10s, 11s);
    EXPECT_FALSE(clock_.set_back_within(24h, now()));
    EXPECT_GE(*clock_.at(now()), noon_);
    show(noon_ - 10s, 5s);
    EXPECT_TRUE(clock_.set_back_within(24h, now()))
        << "the process stood still for five seconds only";
}

TEST_F(ServerClockTest, a_reading_sets_the_time_also_back_by_less_than_a_step)
{
    show(noon_);
    clock_.set({ now() - 1s, noon_ - 2s, now() });
    EXPECT_LT(*clock_.at(now()), noon_ - 1s + 500ms) << "executed when called, or later";
    EXPECT_GE(*clock_.at(now()), noon_ - 2s);
    EXPECT_FALSE(clock_.set_back_within(24h, now()));
}

TEST_F(ServerClockTest, a_reply_shows_that_the_clock_was_set_back)
{
    show(noon_);
    reply(noon_ - 10s);
    EXPECT_TRUE(clock_.set_back_within(24h, now()));
    reply(noon_ - 10s);
    EXPECT_TRUE(clock_.set_back_within(24h, now())) << "also the next reply";
    EXPECT_LT(*clock_.at(now()), noon_) << "it is the time of the server";
}

TEST_F(ServerClockTest, a_clock_counts_as_set_back_until_it_shows_again_what_it_had_shown)
{
    show(noon_);
    reply(noon_ - 1h);
    EXPECT_TRUE(clock_.set_back_within(10s, now() + 1h));
    EXPECT_FALSE(clock_.set_back_within(10s, now() + 1h + 11s));
    reply(noon_ - 1h - 5s);
    EXPECT_TRUE(clock_.set_back_within(1s, now() + 59min))
        << "a smaller step does not shorten that";
}

TEST_F(ServerClockTest, a_clock_that_was_set_back_by_years_counts_for_a_day)
{
    show(noon_);
    reply(noon_ - 24h * 365);
    EXPECT_TRUE(clock_.set_back_within(10s, now() + 24h));
    EXPECT_FALSE(clock_.set_back_within(10s, now() + 24h + 11s));
}

TEST_F(ServerClockTest, a_server_with_the_keys_of_another_one_is_compared_with_that)
{
    show(noon_);
    ServerClock other;
    other.takes_over_from(clock_);
    EXPECT_FALSE(other.set_back_within(24h, now())) << "its clock is not known yet";
    EXPECT_EQ(other.at(now()), std::nullopt);
    other.note({ now(), noon_ - 10s, now() });
    EXPECT_TRUE(other.set_back_within(24h, now()));

    ServerClock third;
    third.takes_over_from(other);
    EXPECT_TRUE(third.set_back_within(24h, now())) << "it has keys of the first one, too";
}

TEST_F(
    ServerClockTest,
    a_server_with_the_keys_of_one_that_was_not_reached_is_compared_with_the_one_before)
{
    show(noon_);
    ServerClock second;
    second.takes_over_from(clock_);
    ServerClock third;
    third.takes_over_from(second);
    third.note({ now(), noon_ - 10s, now() });
    EXPECT_TRUE(third.set_back_within(24h, now()));
}

TEST_F(ServerClockTest, a_server_in_use_gets_keys_of_one_whose_clock_is_ahead)
{
    ServerClock other;
    other.note({ now(), noon_ - 10s, now() });
    show(noon_ - 2s);
    clock_.takes_over_from(other);
    EXPECT_FALSE(clock_.set_back_within(24h, now())) << "the other one is behind";
    other.takes_over_from(clock_);
    EXPECT_TRUE(other.set_back_within(24h, now()));
}

TEST_F(ServerClockTest, servers_with_about_the_same_time_take_over_from_each_other)
{
    show(noon_);
    ServerClock other;
    other.takes_over_from(clock_);
    other.note({ now(), noon_ - 2s, now() });
    clock_.takes_over_from(other);
    EXPECT_FALSE(other.set_back_within(24h, now()));
    EXPECT_FALSE(clock_.set_back_within(24h, now()));
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

TEST_F(ServerClockTest, a_late_reply_is_no_reading_also_that_to_a_probe)
{
    const Exchange late{ nullptr, now() - 1s, now() };
    late.read(noon_, true);
    EXPECT_TRUE(late.read(redisReply{})) << "it is not looked at";
    const Exchange in_time{ &clock_, now() - 1s, now() };
    EXPECT_FALSE(in_time.read(redisReply{})) << "it is no time";
    EXPECT_FALSE(clock_.at(now()));
    in_time.read(noon_, true);
    EXPECT_GE(clock_.at(now()), noon_);
}

}  // namespace
}  // namespace ratelimit::redis
