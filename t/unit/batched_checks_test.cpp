// Checks of different keys that leave in one turn of the loop share a script call.

#include "coalescer_fixture.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using End = ShardPart::End;

class BatchedChecks : public CoalescerTest {
protected:
    Request& send_key(int number, Algorithm algorithm = Algorithm::fixed_window)
    {
        Asked asked;
        asked.key = "key" + std::to_string(number);
        asked.policy.algorithm = algorithm;
        asked.policy.rate.quota = 100 + number;
        return send(asked);
    }
    long calls() const { return server_.calls("evalsha"); }

    RedisServer server_;
};

TEST_F(BatchedChecks, of_one_turn_share_calls_and_each_has_its_own_answer)
{
    begin(options_to(server_.port()));
    for (int i = 0; i < 100; ++i) {
        send_key(i);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), (100 + 15) / 16);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(remaining()[static_cast<std::size_t>(i)], 99 + i);
    }
}

TEST_F(BatchedChecks, share_as_few_calls_over_several_connections)
{
    auto options = options_to(server_.port());
    options.server.connections = 8;
    begin(options);
    loop_.run_for(300ms);  // all are connected
    for (int i = 0; i < 64; ++i) {
        send_key(i);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 64 / 16);
    EXPECT_EQ(count(End::answered), 64);
}

TEST_F(BatchedChecks, share_a_call_with_those_of_their_algorithm_only)
{
    begin(options_to(server_.port()));
    for (int i = 0; i < 16; ++i) {
        send_key(i, i % 2 == 0 ? Algorithm::fixed_window : Algorithm::gcra);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 2);
    EXPECT_EQ(count(End::answered), 16);
}

TEST_F(BatchedChecks, whose_requests_left_in_the_same_turn_are_not_asked)
{
    begin(options_to(server_.port()));
    for (int i = 0; i < 10; ++i) {
        send_key(i);
    }
    for (int i = 0; i < 10; i += 2) {
        requests_[static_cast<std::size_t>(i)].reset();
    }
    std::erase(requests_, nullptr);
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::answered), 5);
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 100, 102, 104, 106, 108 }));
}

TEST_F(BatchedChecks, whose_requests_leave_before_the_reply_shift_no_answer)
{
    begin(options_to(server_.port()));
    server_.pause();
    for (int i = 0; i < 10; ++i) {
        send_key(i);
    }
    loop_.run_for(5ms);
    for (int i = 0; i < 10; i += 2) {
        requests_[static_cast<std::size_t>(i)].reset();
    }
    std::erase(requests_, nullptr);
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 100, 102, 104, 106, 108 }));
}

TEST_F(BatchedChecks, may_destroy_each_other_when_they_are_told)
{
    begin(options_to(server_.port()));
    for (int i = 0; i < 3; ++i) {
        send_key(i);
    }
    requests_[0]->then = [this] { requests_[1].reset(); };
    ASSERT_TRUE(loop_.run_until([this] { return requests_[2]->ends == 1; }));
    EXPECT_EQ(requests_[2]->remaining(), 101);
}

TEST_F(BatchedChecks, are_all_sent_again_when_the_server_has_lost_its_scripts)
{
    begin(options_to(server_.port()));
    const long loads = server_.calls("script|load");
    server_.ask({ "SCRIPT", "FLUSH" });
    for (int i = 0; i < 40; ++i) {
        send_key(i);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::answered), 40);
    EXPECT_EQ(server_.calls("getrange"), 40);
    EXPECT_EQ(server_.calls("script|load") - loads, static_cast<long>(scripts_.size()))
        << "every script once";
}

TEST_F(BatchedChecks, all_fail_when_the_connection_is_lost)
{
    begin(options_to(server_.port()));
    server_.pause();
    for (int i = 0; i < 20; ++i) {
        send_key(i);
    }
    loop_.run_for(5ms);
    server_.kill();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 20);
    for (const auto& request : requests_) {
        EXPECT_EQ(request->ends, 1);
    }
}

TEST_F(BatchedChecks, all_fail_when_they_are_closed_before_they_are_written)
{
    begin(options_to(server_.port()));
    for (int i = 0; i < 10; ++i) {
        send_key(i);
    }
    client_->close();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 10);
    loop_.run_for(10ms);
    EXPECT_EQ(calls(), 0);
}

/// One node that has all hash slots, and is used without its cluster.
class SlottedServer : public CoalescerTest {
protected:
    // Without a port of its own the cluster's bus takes the server's + 10000, free or not.
    RedisServer slotted_{ "cluster-enabled yes\ncluster-port " + std::to_string(free_port()) };
};

TEST_F(SlottedServer, takes_checks_one_by_one_once_it_has_refused_keys_of_several_slots)
{
    slotted_.ask({ "CLUSTER", "ADDSLOTSRANGE", "0", "16383" });
    ASSERT_TRUE(loop_.run_until([this] {
        return slotted_.ask({ "CLUSTER", "INFO" }).find("cluster_state:ok") != std::string::npos;
    }));
    begin(options_to(slotted_.port()));
    for (int turn = 0; turn < 2; ++turn) {
        for (int i = 0; i < 20; ++i) {
            Asked asked;
            asked.key = "key" + std::to_string(i);
            send(asked);
        }
        ASSERT_TRUE(run());
    }
    EXPECT_EQ(count(End::answered), 40);
    EXPECT_EQ(slotted_.calls("getrange"), 40) << "nothing was counted twice";
    EXPECT_TRUE(events_.errors.empty());
}

}  // namespace
}  // namespace ratelimit
