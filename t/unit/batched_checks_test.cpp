// Checks of different keys that are sent in one turn of the loop share a script call.

#include "coalescer_fixture.h"
#include "reply_bytes.h"
#include "resp_reply.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using End = ShardPart::End;

class BatchedChecks : public CoalescerTest {
protected:
    Request& send_key(int number, Algorithm algorithm = Algorithm::fixed_window)
    {
        Asked limit;
        limit.key = "key" + std::to_string(number);
        limit.policy.algorithm = algorithm;
        limit.policy.rate.quota = 100 + number;
        return send(limit);
    }
    void send_keys(int count)
    {
        for (int i = 0; i < count; ++i) {
            send_key(i);
        }
    }
    long calls() const { return server_.calls("evalsha"); }

    RedisServer server_;
};

TEST_F(BatchedChecks, of_one_turn_share_calls_and_each_gets_its_own_verdict)
{
    begin(server_);
    send_keys(100);
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), (100 + 15) / 16);
    for (int i = 0; i < 100; ++i) {
        EXPECT_EQ(remaining()[static_cast<std::size_t>(i)], 99 + i);
    }
}

/// The loop does not run before Redis has executed the call.
TEST_F(BatchedChecks, that_fill_a_call_leave_before_the_turn_ends)
{
    begin(server_);
    send_keys(20);
    const auto end = std::chrono::steady_clock::now() + 10s;
    while (calls() == 0 && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(calls(), 1);
    EXPECT_EQ(count(End::pending), 20) << "no reply was read";
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 2);
    EXPECT_EQ(count(End::answered), 20);
}

TEST_F(BatchedChecks, share_calls_over_several_connections_too)
{
    auto options = options_to(server_.port());
    options.server.connections = 8;
    begin(options);
    load_scripts(server_);
    loop_.run_for(300ms);  // a silent wait: until all are connected
    send_keys(64);
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 64 / 16);
    EXPECT_EQ(count(End::answered), 64);
}

TEST_F(BatchedChecks, share_a_call_with_checks_of_their_algorithm_only)
{
    begin(server_);
    for (int i = 0; i < 16; ++i) {
        send_key(i, i % 2 == 0 ? Algorithm::fixed_window : Algorithm::gcra);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(calls(), 2);
    EXPECT_EQ(count(End::answered), 16);
}

TEST_F(BatchedChecks, of_requests_destroyed_in_the_same_turn_are_not_sent)
{
    begin(server_);
    send_keys(10);
    drop_every_second();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::answered), 5);
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 100, 102, 104, 106, 108 }));
}

TEST_F(BatchedChecks, of_requests_destroyed_before_the_reply_do_not_shift_other_verdicts)
{
    begin(server_);
    server_.pause();
    send_keys(10);
    loop_.run_for(5ms);  // a silent wait: the batch is written
    drop_every_second();
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 100, 102, 104, 106, 108 }));
}

TEST_F(BatchedChecks, may_destroy_each_other_when_they_end)
{
    begin(server_);
    send_keys(3);
    requests_[0]->then = [this] { requests_[1].reset(); };
    ASSERT_TRUE(loop_.run_until([this] { return requests_[2]->ends == 1; }));
    EXPECT_EQ(requests_[2]->remaining(), 101);
}

TEST_F(BatchedChecks, are_all_sent_again_when_the_server_has_lost_its_scripts)
{
    begin(server_);
    server_.ask({ "SCRIPT", "FLUSH" });
    const long texts = server_.calls("eval");
    send_keys(40);
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::answered), 40);
    EXPECT_EQ(server_.key_reads(), 40);
    EXPECT_EQ(server_.calls("eval") - texts, 3) << "one for each command";
}

TEST_F(BatchedChecks, all_fail_when_the_connection_is_lost)
{
    begin(server_);
    server_.pause();
    send_keys(20);
    loop_.run_for(5ms);  // a silent wait: the batch is written
    server_.kill();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 20);
    for (const auto& request : requests_) {
        EXPECT_EQ(request->ends, 1);
    }
}

TEST_F(BatchedChecks, all_fail_when_they_are_closed_before_they_are_written)
{
    begin(server_);
    send_keys(10);
    client_->close();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 10);
    loop_.run_for(10ms);  // a silent wait: nothing may be written
    EXPECT_EQ(calls(), 0);
}

/// One node that has all hash slots and is used without topology cluster.
class SlottedServer : public CoalescerTest {
protected:
    RedisServer slotted_{ "cluster-enabled yes" };
};

TEST_F(SlottedServer, gets_single_checks_after_it_has_refused_keys_of_several_slots)
{
    std::vector<std::string> add_slots{ "CLUSTER", "ADDSLOTS" };
    for (int slot = 0; slot < 16384; ++slot) {
        add_slots.push_back(std::to_string(slot));
    }
    slotted_.ask(add_slots);
    ASSERT_TRUE(loop_.run_until([this] {
        return slotted_.ask({ "CLUSTER", "INFO" }).find("cluster_state:ok") != std::string::npos;
    }));
    begin(slotted_);
    for (int turn = 0; turn < 2; ++turn) {
        for (int i = 0; i < 20; ++i) {
            Asked limit;
            limit.key = "key" + std::to_string(i);
            send(limit);
        }
        ASSERT_TRUE(run());
    }
    EXPECT_EQ(count(End::answered), 40);
    EXPECT_EQ(slotted_.key_reads(), 40) << "each request is counted once";
    EXPECT_TRUE(events_.errors.empty());
}

class BatchedInCluster : public SlottedServer {
protected:
    void send_keys(std::initializer_list<const char*> keys)
    {
        for (const char* key : keys) {
            send(Asked{ .key = key });
        }
    }
};

TEST_F(BatchedInCluster, checks_of_one_slot_share_a_call)
{
    slotted_.ask({ "CLUSTER", "ADDSLOTSRANGE", "0", "16383" });
    ASSERT_TRUE(loop_.run_until([this] {
        return slotted_.ask({ "CLUSTER", "INFO" }).find("cluster_state:ok") != std::string::npos;
    }));
    begin(options_to(slotted_.port(), redis::Topology::cluster));
    load_scripts(slotted_);
    send_keys({ "{a}1", "{a}2", "{a}3", "{b}1", "{b}2" });
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::answered), 5);
    EXPECT_EQ(slotted_.calls("evalsha"), 2);
    EXPECT_TRUE(events_.errors.empty());
}

TEST_F(BatchedInCluster, checks_whose_keys_a_slot_migration_separates_are_sent_again_one_by_one)
{
    std::atomic<int> calls = 0;
    MockServer node(
        [&calls] {
            return calls++ == 0 ? "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
                                : bulk(doubles({ 1, 99, 5, 0, 0, 0 }));
        },
        [](int own) { return "*1\r\n" + slots_at(0, 16383, own); });
    begin(options_to(node.port(), redis::Topology::cluster));
    send_keys({ "{a}1", "{a}2", "{a}3" });
    ASSERT_TRUE(run());
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 99, 99, 99 }));
    EXPECT_EQ(node.calls(), 1 + 3);
}

}  // namespace
}  // namespace ratelimit
