#include "loop/due_time.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

TEST(DueTime, is_due_after_its_delay_and_not_before)
{
    DueTime due;
    due.start(1000ms, 100ms);
    EXPECT_EQ(due.left(1040ms), 60ms) << "the loop's cached time was old";
    EXPECT_EQ(due.left(1100ms), 0ms);
    EXPECT_EQ(due.left(1100ms + DueTime::tolerance - 1ms), 0ms);
}

TEST(DueTime, takes_no_usual_lateness_for_a_pause)
{
    DueTime due;
    due.start(1000ms, 100ms, 1000ms);
    EXPECT_EQ(due.left(1050ms), 50ms) << "the loop's timer is early";
    EXPECT_EQ(due.left(2100ms), 0ms);
    due.start(1000ms, 100ms, 1000ms);
    EXPECT_EQ(due.left(2100ms + DueTime::tolerance), 100ms) << "later than usual";
}

TEST(DueTime, extends_the_time_by_pauses_of_the_process)
{
    DueTime due;
    due.start(1000ms, 100ms);
    EXPECT_EQ(due.left(1150ms), 50ms);
    EXPECT_EQ(due.left(1180ms), 20ms);
    EXPECT_EQ(due.left(1300ms), 100ms) << "another pause";
    EXPECT_EQ(due.left(1430ms), 30ms);
    EXPECT_EQ(due.left(1490ms), 0ms) << "a machine that is always late";
    due.start(2000ms, 100ms);
    EXPECT_EQ(due.left(2150ms), 50ms);
}

TEST(DueTime, extends_the_time_by_no_more_than_its_delay)
{
    DueTime due;
    due.start(1000ms, 100ms);
    EXPECT_EQ(due.left(9000ms), 100ms);
    due.start(1000ms, 0ms);
    EXPECT_EQ(due.left(9000ms), 0ms);
}

}  // namespace
}  // namespace ratelimit
