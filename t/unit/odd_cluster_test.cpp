// Clusters with replies that no real node sends.

#include "client_fixture.h"
#include "mock_server.h"
#include "resp_reply.h"

#include <atomic>
#include <thread>

namespace ratelimit {
namespace {

using redis::Fate;

/// A reply to CLUSTER SLOTS of a cluster of one node.
std::string map_to(int port, const std::string& host = "127.0.0.1")
{
    return "*1\r\n" + slots_at(0, 16383, port, host);
}

/// Of a cluster of two nodes, the second of which has the slot of "key". 0: the map leaves it out.
std::string map_to(int port, int second)
{
    const std::string first = slots_at(0, 8191, port);
    return second == 0 ? "*1\r\n" + first : "*2\r\n" + first + slots_at(8192, 16383, second);
}

std::string moved_to(int port)
{
    return "-MOVED 1 127.0.0.1:" + std::to_string(port) + "\r\n";
}

class OddCluster : public ClientTest {
protected:
    redis::Client& start_cluster(const MockServer& seed)
    {
        auto options = options_to(seed.port(), redis::Topology::cluster);
        options.server.timeout = 1s;
        options.server.connect_timeout = 1s;
        return start(std::move(options));
    }

    /// Notes whether counts are lost of the server that owned the slot of "key" until then.
    void note_owner_when_lost()
    {
        owner_lost_ = false;
        events_.lost = [this](std::uint32_t server) {
            owner_lost_ = server == client_->server_of(client_->shard_of("key"));
        };
    }

    bool owner_lost_ = false;
};

TEST_F(OddCluster, an_invalid_map_is_reported_once_and_requested_again)
{
    for (const std::string map :
         { "+OK\r\n", ":1\r\n", "*0\r\n", "*1\r\n*0\r\n", "$-1\r\n", "*-1\r\n",
           "*1\r\n*3\r\n:0\r\n:99999\r\n*0\r\n", "-MOVED 5 127.0.0.1:1\r\n",
           "-ASK 5 127.0.0.1:1\r\n", "-CLUSTERDOWN Hash slot not served\r\n", "-TRYAGAIN\r\n" }) {
        events_ = {};
        MockServer server([] { return "+OK\r\n"; }, map);
        start(options_to(server.port(), redis::Topology::cluster));
        EchoCall call("x");
        ASSERT_TRUE(finish(call)) << map;
        EXPECT_EQ(call.fate, Fate::unsent);
        ASSERT_TRUE(loop_.run_until([&] { return server.connections() == 2; }));
        EXPECT_EQ(events_.unknown.size(), 1U) << map;
        EXPECT_TRUE(events_.known.empty());
        client_.reset();
    }
}

TEST_F(OddCluster, a_client_that_rested_reconnects_to_its_nodes)
{
    MockServer node([] { return bulk("x"); }, [](int own) { return map_to(own); });
    start_cluster(node);
    EXPECT_EQ(ask("x"), "x");
    for (int i = 0; i < 2; ++i) {
        const int connections = node.connections();
        client_->rest();
        EXPECT_EQ(ask("x"), "x");
        EXPECT_GT(node.connections(), connections);
    }
}

TEST_F(OddCluster, a_query_that_its_server_cannot_take_goes_to_no_other)
{
    MockServer node([] { return bulk("x"); }, [](int own) { return map_to(own); });
    start_cluster(node);
    EXPECT_EQ(ask("x"), "x");
    EchoCall query("x");  // without a shard, as CLUSTER SLOTS and probes
    EXPECT_FALSE(static_cast<redis::ServerOwner&>(*client_).reroute(query));
}

TEST_F(OddCluster, a_call_that_two_nodes_redirect_to_each_other_fails)
{
    int port = 0;
    MockServer one([&] { return moved_to(port); }, [](int own) { return map_to(own); });
    MockServer other([&] { return moved_to(one.port()); }, "+OK\r\n");
    port = other.port();
    start_cluster(one);
    EXPECT_EQ(ask("x"), "error reply");
    EXPECT_GT(one.calls() + other.calls(), 2);
    EXPECT_LE(one.calls() + other.calls(), 6);
}

TEST_F(OddCluster, a_call_redirected_to_a_dead_node_waits_for_a_takeover_until_its_timeout)
{
    const int dead = free_port();
    MockServer one([&] { return moved_to(dead); }, [](int own) { return map_to(own); });
    start_cluster(one);
    const auto began = loop_.now();
    const auto end =
        ask("x");  // it depends on whether the call is in flight to the other node then
    EXPECT_TRUE(end == "no reply in time" || end == "error reply") << end;
    EXPECT_GE(loop_.now() - began, 900ms);
    EXPECT_LT(loop_.now() - began, 2s);
}

TEST_F(OddCluster, a_call_lost_with_a_connection_without_a_reply_is_retried_on_another_node)
{
    MockServer heir([] { return bulk("x"); });
    MockServer dying([] { return "close"; }, [&](int own) { return map_to(heir.port(), own); });
    start_cluster(dying);
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(dying.calls(), 1);
    EXPECT_EQ(heir.calls(), 1);
}

TEST_F(OddCluster, a_call_redirected_to_a_hung_node_ends_in_time)
{
    RedisServer hung;
    MockServer one([&] { return moved_to(hung.port()); }, [](int own) { return map_to(own); });
    hung.pause();
    start_cluster(one);
    const auto began = loop_.now();
    EXPECT_NE(ask("x"), "x");
    EXPECT_LT(loop_.now() - began, 4s);
    EXPECT_GE(loop_.now() - began, 900ms);
    hung.resume();
}

TEST_F(OddCluster, each_seed_that_hangs_delays_the_map_by_a_moment_only)
{
    RedisServer one;
    RedisServer other;
    RedisServer third;
    one.pause();
    other.pause();
    third.pause();
    MockServer good([] { return bulk("x"); }, [](int own) { return map_to(own); });
    auto options = options_to(one.port(), redis::Topology::cluster);
    options.servers.push_back(server_at(other.port()));
    options.servers.push_back(server_at(third.port()));
    options.servers.push_back(server_at(good.port()));
    const auto began = loop_.now();
    start(std::move(options));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_LT(loop_.now() - began, 1500ms) << "less than two of their timeouts";
    one.resume();
    other.resume();
    third.resume();
}

TEST_F(OddCluster, any_late_reply_of_a_node_closes_its_breaker)
{
    for (const std::string reply :
         { "-MOVED 1 127.0.0.1:1\r\n", "-CLUSTERDOWN no\r\n", "-TRYAGAIN no\r\n", "*0\r\n" }) {
        events_ = {};
        std::atomic<bool> hangs{ true };
        MockServer one(
            [&] {
                while (hangs) {
                    std::this_thread::sleep_for(1ms);
                }
                return reply;
            },
            [](int own) { return map_to(own); });
        auto options = options_to(one.port(), redis::Topology::cluster);
        options.server.timeout = 50ms;
        options.server.breaker_failures = 1;
        options.server.breaker_open = 60s;
        auto& client = start_ready(options);
        one.ignore_time();  // a probe's reply would close it too
        const auto refused = [&client] {
            bool is_open = false;
            client.each_server([&](redis::Server& each) { is_open = each.refuses(); });
            return is_open;
        };
        EXPECT_EQ(ask("x"), "no reply in time");
        EXPECT_TRUE(refused());
        hangs = false;
        EXPECT_TRUE(loop_.run_until([&] { return !refused(); }, 10s)) << reply;
        client_.reset();
    }
}

TEST_F(OddCluster, a_call_to_a_slot_without_an_owner_is_retried_and_the_node_stays_up)
{
    int calls = 0;
    MockServer one(
        [&] {
            return ++calls <= 3 ? std::string("-CLUSTERDOWN Hash slot not served\r\n") : bulk("x");
        },
        [](int own) { return map_to(own); });
    start_cluster(one);
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(events_.errors.size(), 1U) << "it is reported once";
}

TEST_F(OddCluster, of_several_addresses_of_a_nodes_name_the_one_that_works_is_found)
{
    MockServer one([] { return bulk("x"); }, [](int own) { return map_to(own, "node.test"); });
    loop_.names["node.test"] = { { "127.0.0.8", "127.0.0.9", "127.0.0.1" }, 1s };
    start_cluster(one);
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(one.calls(), 1);
}

/// A redirection of the slot of "key".
std::string redirection(const std::string& kind, int port)
{
    return "-" + kind + " 12539 127.0.0.1:" + std::to_string(port) + "\r\n";
}

TEST_F(OddCluster, a_takeover_that_the_map_shows_may_lose_counts)
{
    std::atomic<int> owner{ 0 };
    MockServer seed([] { return bulk("x"); }, [&](int own) { return map_to(own, owner); });
    auto dying = std::make_unique<MockServer>([] { return bulk("x"); });
    owner = dying->port();
    start_cluster(seed);
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.losses, 0);
    note_owner_when_lost();
    owner = seed.port();
    dying.reset();
    EXPECT_TRUE(loop_.run_until([this] { return events_.losses == 1; }));
    EXPECT_TRUE(owner_lost_);
}

TEST_F(OddCluster, a_takeover_that_a_redirection_shows_may_lose_counts)
{
    int owner = 0;
    MockServer heir([] { return bulk("x"); });
    MockServer seed(
        [&] { return redirection("MOVED", heir.port()); },
        [&](int own) { return map_to(own, owner); });
    auto dying = std::make_unique<MockServer>([] { return bulk("x"); });
    owner = dying->port();
    start_cluster(seed);
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.losses, 0);
    note_owner_when_lost();
    dying.reset();
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.losses, 1);
    EXPECT_TRUE(owner_lost_);
}

TEST_F(OddCluster, a_takeover_from_a_master_that_still_answers_may_lose_counts)
{
    for (const bool by_map : { false, true }) {
        events_.losses = 0;
        std::atomic<int> owner{ 0 };
        MockServer heir([] { return bulk("x"); });
        MockServer demoted([&] {
            return by_map ? std::string("-CLUSTERDOWN\r\n") : redirection("MOVED", heir.port());
        });
        MockServer seed([] { return bulk("x"); }, [&](int own) { return map_to(own, owner); });
        owner = demoted.port();
        start_cluster(seed);
        note_owner_when_lost();
        ASSERT_TRUE(loop_.run_until([&] { return demoted.connections() == 1; }));
        owner = by_map ? heir.port() : demoted.port();
        ask("x");  // there is a search each second, so that a call may fail before the map comes
        EXPECT_TRUE(loop_.run_until([this] { return events_.losses == 1; }));
        EXPECT_TRUE(owner_lost_);
        EXPECT_EQ(ask("x"), "x");
        client_.reset();
    }
}

TEST_F(OddCluster, a_master_that_is_cut_off_from_the_others_is_left_before_the_map_is_read_again)
{
    MockServer heir([] { return bulk("x"); });
    MockServer cut_off([] { return "-CLUSTERDOWN The cluster is down\r\n"; });
    MockServer seed(
        [&] { return redirection("MOVED", heir.port()); },
        [&](int own) { return map_to(own, cut_off.port()); });
    start_cluster(seed);
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; })) << "one to turn to";
    EXPECT_EQ(ask("x"), "x");
    EXPECT_LE(cut_off.calls(), 1);
}

TEST_F(OddCluster, a_known_node_that_does_not_answer_for_the_map_stays_in_use)
{
    for (const std::string reply :
         { "-MOVED 5 127.0.0.1:1\r\n", "-CLUSTERDOWN Hash slot not served\r\n" }) {
        std::atomic<int> maps{ 0 };
        MockServer heir([] { return bulk("x"); });
        MockServer node(
            [&] { return redirection("MOVED", heir.port()); },
            [&](int own) { return ++maps == 1 ? map_to(own) : reply; });
        start_cluster(node);
        EXPECT_EQ(ask("x"), "x");  // the MOVED calls for a new map
        ASSERT_TRUE(loop_.run_until([&] { return maps >= 2; })) << reply;
        loop_.run_for(50ms);  // a silent wait: for the reply
        EXPECT_EQ(ask("x"), "x") << reply;
        client_.reset();
    }
}

TEST_F(OddCluster, a_slot_that_the_map_leaves_out_in_a_takeover_is_found_by_its_last_owner)
{
    std::atomic<int> maps{ 0 };
    std::atomic<int> owner{ 0 };
    MockServer heir([] { return bulk("x"); });
    const std::string down = "-CLUSTERDOWN Hash slot not served\r\n";
    MockServer demoted([&] { return maps == 1 ? down : redirection("MOVED", heir.port()); });
    MockServer seed(
        [&] { return down; }, [&](int own) { return map_to(own, ++maps == 1 ? owner.load() : 0); });
    owner = demoted.port();
    start_cluster(seed);
    ASSERT_TRUE(loop_.run_until([&] { return demoted.connections() == 1; }));
    note_owner_when_lost();
    ask("x");  // there is a search each second, so that a call may fail before the map comes
    ASSERT_TRUE(loop_.run_until([&] { return maps == 2; })) << "which leaves it out";
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(demoted.connections(), 1);
    EXPECT_TRUE(owner_lost_);
}

TEST_F(OddCluster, a_slot_that_moves_between_masters_loses_no_counts)
{
    int second = 0;
    MockServer seed([] { return bulk("x"); }, [&](int own) { return map_to(own, second); });
    MockServer owner([&] { return redirection("MOVED", seed.port()); });
    second = owner.port();
    start_cluster(seed);
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(owner.calls(), 1);
    EXPECT_EQ(events_.losses, 0);
}

TEST_F(OddCluster, a_slot_that_is_being_moved_keeps_its_owner)
{
    MockServer next([] { return bulk("x"); });
    MockServer owner(
        [&] { return redirection("ASK", next.port()); }, [](int own) { return map_to(own); });
    start_cluster(owner);
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(owner.calls(), 2);
    EXPECT_EQ(next.calls(), 2);
}

TEST_F(OddCluster, a_client_closed_while_it_requests_the_map_fails_its_calls)
{
    RedisServer hung;
    hung.pause();
    auto& client = start(options_to(hung.port(), redis::Topology::cluster));
    EchoCall call("x");
    ASSERT_TRUE(client.send(call));
    loop_.run_for(50ms);
    client.close();
    EXPECT_EQ(call.fate, Fate::unsent);
    client_.reset();
    hung.resume();
}

}  // namespace
}  // namespace ratelimit
