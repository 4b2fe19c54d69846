// The deadlines of calls in flight, and the silence of their server, by a clock that the test sets.

#include "client_fixture.h"
#include "redis/in_flight.h"

#include <deque>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using redis::InFlight;

constexpr auto timeout = 100ms;
constexpr auto longest_silence = 400ms;

class InFlightTest : public testing::Test {
protected:
    ~InFlightTest() override { end_all(in_flight_.take_all()); }

    /// Adds calls that are sent as one command, each with this deadline.
    void add(std::size_t count, milliseconds expires)
    {
        redis::CallQueue command;
        for (std::size_t i = 0; i < count; ++i) {
            auto& record = *new redis::PendingCall;
            record.attach(calls_.emplace_back("x"));
            record.call->routing.expires = expires;
            command.push(record);
        }
        in_flight_.add(command);
    }

    /// Adds calls in a turn that takes no time, with a second to their deadline.
    InFlight::Watch send(std::size_t count, milliseconds now)
    {
        in_flight_.begin_turn(now);
        add(count, now + 1s);
        return in_flight_.mark_sent(now, {});
    }

    /// Fails the overdue calls, and returns their number.
    int fail_overdue(milliseconds now)
    {
        int failed = 0;
        in_flight_.each_overdue(now, [&](redis::PendingCall& record) {
            ++failed;
            record.release()->ended(redis::Fate::overdue);
            return true;
        });
        return failed;
    }

    void forget(InFlight::Command command)
    {
        while (!command.calls.empty()) {
            command.calls.pop().end();
        }
    }

    InFlight in_flight_{ timeout, longest_silence };
    std::deque<EchoCall> calls_;
};

TEST_F(InFlightTest, a_call_is_overdue_after_its_timeout)
{
    EXPECT_EQ(send(1, 1000ms).due, 1100ms);
    EXPECT_EQ(fail_overdue(1099ms), 0);
    EXPECT_EQ(fail_overdue(1100ms), 1);
    EXPECT_EQ(fail_overdue(1200ms), 0) << "it fails once";
}

TEST_F(InFlightTest, a_call_with_an_earlier_deadline_is_overdue_earlier)
{
    in_flight_.begin_turn(1000ms);
    add(1, 1030ms);
    EXPECT_EQ(in_flight_.mark_sent(1000ms, {}).due, 1030ms);
    EXPECT_EQ(fail_overdue(1030ms), 1);
}

TEST_F(InFlightTest, the_duration_of_a_turn_does_not_count_against_its_calls)
{
    in_flight_.begin_turn(1000ms);
    add(1, 1050ms);
    EXPECT_EQ(in_flight_.mark_sent(1045ms, {}).due, 1095ms);
}

TEST_F(InFlightTest, a_call_that_expired_while_the_process_was_stopped_gets_its_whole_timeout)
{
    in_flight_.begin_turn(2000ms);
    add(1, 1900ms);
    EXPECT_EQ(in_flight_.mark_sent(2000ms, {}).due, 2100ms);
}

TEST_F(InFlightTest, an_overdue_call_stays_in_the_queue_for_its_late_reply)
{
    send(1, 1000ms);
    send(2, 1050ms);
    EXPECT_EQ(fail_overdue(1120ms), 1);
    EXPECT_EQ(in_flight_.size(), 3U);
    auto late = in_flight_.take_oldest();
    EXPECT_EQ(late.calls.size(), 1U);
    EXPECT_FALSE(late.in_time);
    auto next = in_flight_.take_oldest();
    EXPECT_EQ(next.calls.size(), 2U) << "the calls of one command";
    EXPECT_TRUE(next.in_time);
    forget(late);
    forget(next);
    EXPECT_TRUE(in_flight_.empty());
}

TEST_F(InFlightTest, a_visit_that_loses_the_connection_ends_the_search_for_overdue_calls)
{
    send(2, 1000ms);
    int visits = 0;
    EXPECT_FALSE(in_flight_.each_overdue(1100ms, [&](redis::PendingCall&) {
        ++visits;
        return false;
    }));
    EXPECT_EQ(visits, 1);
}

TEST_F(InFlightTest, silence_counts_from_the_oldest_call_or_the_last_reply)
{
    send(1, 1000ms);
    EXPECT_EQ(in_flight_.silent_at(), 1400ms);
    in_flight_.replied(1200ms);
    EXPECT_EQ(in_flight_.silent_at(), 1600ms);
}

TEST_F(InFlightTest, silence_is_watched_when_all_calls_are_overdue)
{
    send(1, 1000ms);
    EXPECT_TRUE(in_flight_.awaited());
    EXPECT_EQ(in_flight_.watch(1000ms).due, 1100ms);
    EXPECT_TRUE(in_flight_.watch(1000ms).delays_exit);
    fail_overdue(1100ms);
    EXPECT_FALSE(in_flight_.awaited());
    EXPECT_EQ(in_flight_.watch(1100ms).due, 1400ms);
    EXPECT_FALSE(in_flight_.watch(1100ms).delays_exit);
    EXPECT_EQ(in_flight_.watch(1500ms).due, 1501ms) << "not in the past";
}

TEST_F(InFlightTest, calls_are_unsent_until_the_end_of_their_turn)
{
    EXPECT_FALSE(in_flight_.has_unsent());
    send(1, 1000ms);
    in_flight_.begin_turn(1010ms);
    add(1, 2000ms);
    EXPECT_TRUE(in_flight_.has_unsent());
    EXPECT_FALSE(in_flight_.oldest_is_unsent());
    forget(in_flight_.take_oldest());
    EXPECT_TRUE(in_flight_.oldest_is_unsent());
    in_flight_.mark_sent(1010ms, {});
    EXPECT_FALSE(in_flight_.has_unsent());
}

TEST_F(InFlightTest, all_calls_can_be_taken_from_a_lost_connection)
{
    send(2, 1000ms);
    in_flight_.begin_turn(1010ms);
    add(1, 2000ms);
    const redis::CallQueue all = in_flight_.take_all();
    EXPECT_EQ(all.size(), 3U);
    end_all(all);
    EXPECT_TRUE(in_flight_.empty());
    EXPECT_FALSE(in_flight_.has_unsent());
}

}  // namespace
}  // namespace ratelimit
