// Requests of several limits that are sent in one turn of the loop share a script call.

#include "split_fixture.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using End = ShardPart::End;

/// Requests of three limits, which one script decides.
class BatchedSequences : public CoalescerTest {
protected:
    void begin_sequences()
    {
        add_sequence({ { Algorithm::fixed_window },
                       { Algorithm::gcra },
                       { Algorithm::sliding_window_counter, true } });
        begin(server_);
    }
    static std::vector<Asked> limits_of(
        const std::string& first, const std::string& second, const std::string& third)
    {
        std::vector<Asked> limits(3);
        limits[0].key = "first:" + first;
        limits[0].policy.rate.quota = 3;
        limits[1].key = "second:" + second;
        limits[1].policy.algorithm = Algorithm::gcra;
        limits[1].policy.burst = 9;
        limits[2].key = "third:" + third;
        limits[2].policy.algorithm = Algorithm::sliding_window_counter;
        limits[2].policy.rate.quota = 1;
        limits[2].shadow = true;
        return limits;
    }
    static std::vector<Asked> limits_of(int number)
    {
        const std::string each = std::to_string(number);
        return limits_of(each, each, each);
    }
    std::vector<std::int64_t> remaining(std::size_t limit) const
    {
        std::vector<std::int64_t> all;
        for (const auto& request : requests_) {
            all.push_back(request->answered() ? request->state(limit).remaining : -1);
        }
        return all;
    }
    long calls() const { return server_.calls("evalsha"); }

    RedisServer server_;
};

using Numbers = std::vector<std::int64_t>;

/// Of requests of one key in one turn, those of each reserve have a call of their own, and the
/// calls are one command.
TEST_F(BatchedSequences, with_different_reserves_of_one_key_have_one_count)
{
    add_sequence({ { Algorithm::gcra } });
    begin_sequences();
    for (const Algorithm algorithm : rate_algorithms) {
        requests_.clear();
        Asked asked;
        asked.key = name_of(algorithm);
        asked.policy.algorithm = algorithm;
        asked.policy.rate.quota = 10;
        if (keeps_arrival_time(algorithm)) {
            asked.policy.burst = algorithm == Algorithm::token_bucket ? 10 : 9;
        }
        std::vector<std::int64_t> passed(7);
        for (int i = 0; i < 60; ++i) {
            asked.policy.reserve = i % 3 * 3;
            send(asked);
        }
        ASSERT_TRUE(run());
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            ASSERT_TRUE(requests_[i]->answered());
            passed[i % 3 * 3] += requests_[i]->state().granted ? 1 : 0;
        }
        EXPECT_EQ(passed[0] + passed[3] + passed[6], 10) << asked.key;
        EXPECT_LE(passed[3] + passed[6], 7) << asked.key << ": three remained";
        EXPECT_LE(passed[6], 4) << asked.key << ": six remained";
        EXPECT_GE(passed[0], 3) << asked.key;
        EXPECT_GE(passed[6], 1) << asked.key;
    }
}

TEST_F(BatchedSequences, of_one_turn_share_calls_and_each_has_its_own_answer)
{
    begin_sequences();
    for (int i = 0; i < 40; ++i) {
        auto limits = limits_of(i);
        limits[0].policy.rate.quota = 100 + i;
        limits[2].policy.rate.quota = 200 + i;
        send(std::move(limits));
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), (40 + 15) / 16);
    for (int i = 0; i < 40; ++i) {
        const Request& request = *requests_[static_cast<std::size_t>(i)];
        EXPECT_EQ(request.state(0).remaining, 99 + i);
        EXPECT_EQ(request.state(1).remaining, 9);
        EXPECT_EQ(request.state(2).remaining, 199 + i);
    }
}

TEST_F(BatchedSequences, are_decided_in_their_order_each_counted_in_all_its_limits_or_in_none)
{
    begin_sequences();
    for (const std::string each : { "a", "b", "c", "d", "e" }) {
        send(limits_of("shared", each, "shared"));
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 1);
    EXPECT_EQ(remaining(0), (Numbers{ 2, 1, 0, 0, 0 }));
    EXPECT_EQ(remaining(1), (Numbers{ 9, 9, 9, 10, 10 })) << "the last two took nothing";
    EXPECT_EQ(remaining(2), (Numbers{ 0, 0, 0, 0, 0 })) << "a shadow limit refuses no request";
    EXPECT_TRUE(requests_[0]->state(2).granted);
    EXPECT_FALSE(requests_[1]->state(2).granted);
    EXPECT_FALSE(requests_[3]->state(0).granted);
    EXPECT_TRUE(requests_[3]->state(1).granted);
}

TEST_F(BatchedSequences, share_a_call_with_those_of_their_sequence_only)
{
    begin_sequences();
    for (int i = 0; i < 8; ++i) {
        send(limits_of(i));
        send(Asked{ .key = std::to_string(i) });
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 2);
    EXPECT_EQ(count(End::answered), 16);
}

TEST_F(BatchedSequences, with_a_foreign_value_fail_no_other_request_of_the_call)
{
    begin_sequences();
    server_.ask({ "RPUSH", "first:1", "x" });
    server_.ask({ "SET", "second:2", "no state of ours" });
    server_.ask({ "HSET", "third:3", "field", "1" });
    for (int i = 0; i < 5; ++i) {
        send(limits_of(i));
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 1);
    EXPECT_EQ(remaining(0), Numbers(5, 2));
    EXPECT_EQ(remaining(1), Numbers(5, 9));
    EXPECT_EQ(remaining(2), Numbers(5, 0));
}

TEST_F(BatchedSequences, of_the_same_keys_wait_for_each_other_and_are_counted_once_each)
{
    begin_sequences();
    for (int i = 0; i < 5; ++i) {
        send(limits_of("a", "b", "c"));
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 2);
    EXPECT_EQ(remaining(0), (Numbers{ 2, 1, 0, 0, 0 }));
    EXPECT_EQ(remaining(1), (Numbers{ 9, 8, 7, 7, 7 }));
}

TEST_F(BatchedSequences, whose_requests_leave_before_the_reply_shift_no_answer)
{
    begin_sequences();
    server_.pause();
    for (int i = 0; i < 6; ++i) {
        auto limits = limits_of(i);
        limits[0].policy.rate.quota = 100 + i;
        send(std::move(limits));
    }
    loop_.run_for(5ms);
    drop_every_second();
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_EQ(remaining(0), (Numbers{ 100, 102, 104 }));
}

class BatchedSplits : public SplitTest {};

TEST_F(BatchedSplits, checks_and_refunds_of_limits_on_two_servers_share_calls_on_each)
{
    begin_ring();
    load_scripts(one_);
    load_scripts(other_);
    check_all();
    EXPECT_EQ(one_.calls("evalsha"), (20 + 15) / 16);
    EXPECT_EQ(other_.calls("evalsha"), (20 + 15) / 16);
    for (SplitRequest& split : splits_) {
        EXPECT_EQ(split.limits[0].state.remaining, 99);
        EXPECT_TRUE(split.check->refund(microseconds{ 0 }));
        EXPECT_EQ(split.limits[0].state.remaining, 100);
        EXPECT_EQ(split.limits[1].state.remaining, 100);
    }
    ASSERT_TRUE(loop_.run_until([this] { return one_.calls("evalsha") == 2 + 2; }));
    ASSERT_TRUE(loop_.run_until([this] { return other_.calls("evalsha") == 2 + 2; }));
    check_all();
    EXPECT_EQ(splits_[7].limits[0].state.remaining, 99) << "the first check was refunded";
    EXPECT_EQ(splits_[7].limits[1].state.remaining, 99);
}

}  // namespace
}  // namespace ratelimit
