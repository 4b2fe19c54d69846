// The order in which a worker states again what its requests hold.

#include "holding_fixture.h"

namespace ratelimit {
namespace {

class OutboxTest : public HoldingTest {};

TEST_F(OutboxTest, a_server_that_does_not_answer_delays_nothing_that_another_should_know)
{
    Worker& of = add_worker();
    RemoteLimit limit = limit_of(of, "{k}", 3);
    limit.shard = 1;
    send(of, std::move(limit));
    hold_keys(of, 300);
    settle();
    of.holdings.restate(0);
    wait(of, 60ms);
    for (int i = 0; i < 5; ++i) {
        fail_all(of, redis::Fate::overdue);
        wait(of, 100ms);
    }
    const std::size_t unanswered = of.client.messages.size();
    ask("FLUSHALL");
    of.holdings.restate(1);
    wait(of, 2ms);
    ASSERT_EQ(of.client.messages.size(), unanswered + 1) << "the first server has not answered";
    answer(of, std::prev(of.client.messages.end()));
    EXPECT_EQ(remaining(), 2);
    of.requests.clear();
    settle();
}

TEST_F(OutboxTest, a_key_that_moves_to_another_server_does_not_wait_for_the_first_one)
{
    Worker& of = add_worker();
    hold_keys(of, 300);
    RemoteLimit moves = limit_of(of, "{k}", 3);
    moves.shard = 1;
    of.client.servers = { { 1, 0 } };
    send(of, std::move(moves));
    settle();
    of.holdings.restate(0);
    wait(of, 60ms);
    const std::size_t unanswered = of.client.messages.size();
    ask("FLUSHALL");
    of.client.servers = { { 1, 2 } };
    of.client.outbox().servers_changed();
    wait(of, 2ms);
    ASSERT_EQ(of.client.messages.size(), unanswered + 1) << "the first one has not answered";
    answer(of, std::prev(of.client.messages.end()));
    EXPECT_EQ(remaining(), 2);
    of.requests.clear();
    settle();
}

TEST_F(OutboxTest, all_keys_have_their_turn_if_connections_are_lost_again_and_again)
{
    Worker& of = add_worker();
    hold_keys(of, 300);
    settle();
    ask("FLUSHALL");
    std::int64_t known = 0;
    int losses = 0;
    for (; losses < 30 && known < 300; ++losses) {
        of.holdings.restate(0);
        for (int round_trips = 0; round_trips < 2; ++round_trips) {
            wait(of, 60ms);
            for (std::size_t left = of.client.messages.size(); left > 0; --left) {
                answer(of, of.client.messages.begin());
            }
        }
        fail_all(of, redis::Fate::lost);
        known = 0;
        for (int i = 0; i < 300; ++i) {
            known += ask("TYPE {%d}", i) == "none" ? 0 : 1;
        }
    }
    EXPECT_EQ(known, 300);
    EXPECT_LE(losses, 12) << "at least 25 between two losses";
    of.requests.clear();
    settle();
}

TEST_F(OutboxTest, a_lost_connection_leaves_a_quarter_of_what_was_in_flight)
{
    Worker& of = add_worker();
    hold_keys(of, 1000);
    settle();
    of.holdings.restate(0);
    for (wait(of, 5ms); of.client.messages.size() < 160; wait(of, 5ms)) {
        ASSERT_FALSE(of.client.messages.empty());
        for (std::size_t left = of.client.messages.size(); left > 0; --left) {
            answer(of, of.client.messages.begin());
        }
    }
    of.client.outbox().restart(0);
    fail_all(of, redis::Fate::lost);
    of.holdings.restate(0);
    wait(of, 60ms);
    EXPECT_LE(of.client.messages.size(), 50U) << "Redis may be another one";
    EXPECT_GE(of.client.messages.size(), 40U);
    settle();
    of.requests.clear();
    settle();
}

TEST_F(OutboxTest, what_redis_knows_for_the_shortest_time_is_stated_first)
{
    Worker& of = add_worker();
    Holdings other({ of.client, 3s, +[]() noexcept { return virtual_now - 1'000'000s; },
                     [](std::int64_t) {} });
    hold_keys(of, 100);
    RemoteLimit limit = limit_of(of, "{k}", 3, &other);
    limit.policy.rate.window = 3s;
    send(of, std::move(limit));
    settle();
    ask("FLUSHALL");
    of.holdings.restate(0);
    other.restate(0);
    wait(of, 2ms);
    ASSERT_FALSE(of.client.messages.empty());
    answer(of, of.client.messages.begin());
    EXPECT_EQ(remaining(), 2);
    of.requests.clear();
    settle();
    other.close();
}

}  // namespace
}  // namespace ratelimit
