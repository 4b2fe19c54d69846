// A server that tries to crash its client, or to fill its memory.

#include "client_fixture.h"
#include "fleet_fixture.h"
#include "mock_server.h"
#include "redis/cluster_slots.h"
#include "redis/reply_limits.h"
#include "resp_reply.h"

#include <algorithm>
#include <atomic>
#include <fstream>

#ifdef __SANITIZE_ADDRESS__
extern "C" void __sanitizer_purge_allocator();  // gcc 12 has no header with it
#endif

namespace ratelimit {
namespace {

/// Arrays of one element, one in the other.
std::string nested(int depth)
{
    std::string text;
    for (int i = 0; i < depth; ++i) {
        text += "*1\r\n";
    }
    return text + ":1\r\n";
}

/// A bulk string that is announced to be longer than what comes of it.
std::string endless()
{
    return "$8000000000\r\n" + std::string(std::size_t{ 4 } << 20U, 'x');
}

/// Few bytes that announce many elements.
std::string many_arrays()
{
    std::string text = "*60000\r\n";
    for (int i = 0; i < 60'000; ++i) {
        text += "*60000\r\n";
    }
    return text;
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t bound = std::size_t{ 64 } << 20U;  // freed memory is kept for a while
void release_freed_memory()
{
    __sanitizer_purge_allocator();
}
#else
constexpr std::size_t bound = std::size_t{ 32 } << 20U;
void release_freed_memory() {}
#endif

/// From here on peak_memory() counts.
void forget_peak_memory()
{
    std::ofstream("/proc/self/clear_refs") << 5;
}

/// What the process has used at most, in bytes.
std::size_t peak_memory()
{
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word && word != "VmHWM:") {
    }
    std::size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
}

TEST(ReplyLimits, accept_the_depth_of_the_deepest_reply_and_no_more)
{
    for (const auto& [depth, good] : { std::pair{ 4, true }, { 5, true }, { 6, false } }) {
        redisReader* reader = redisReaderCreate();
        const redis::ReplyLimits limits(*reader);
        const auto text = nested(depth);
        redisReaderFeed(reader, text.data(), text.size());
        void* reply = nullptr;
        EXPECT_EQ(redisReaderGetReply(reader, &reply) == REDIS_OK, good) << depth;
        freeReplyObject(reply);
        redisReaderFree(reader);
    }
}

class HostileServer : public ClientTest {};

TEST_F(HostileServer, a_reply_that_is_too_deep_or_too_large_closes_its_connection)
{
    // No connection lasts for 100 ms, and so counts as one that worked, however slow the machine
    // is.
    loop_.longest_step = 50us;
    for (const auto& [answer, reason] :
         { std::pair{ nested(400'000), "a reply is nested too deep" },
           { endless(), "a reply is larger than any to its command" },
           { many_arrays(), "a reply is larger than any to its command" },
           { "+" + std::string(std::size_t{ 1 } << 20U, 'x'),
             "a reply is larger than any to its command" } }) {
        events_ = {};
        MockServer server([answer = answer] { return answer; });
        start_ready(options_to(server.port()));
        release_freed_memory();
        forget_peak_memory();
        const auto before = peak_memory();
        for (int i = 0; i < 50 && events_.downs == 0; ++i) {
            EXPECT_EQ(ask("x"), "no connection") << reason;
            release_freed_memory();
        }
        EXPECT_LT(peak_memory(), before + bound) << reason;
        EXPECT_TRUE(loop_.run_until([&] { return events_.downs > 0; }));
        EXPECT_EQ(events_.last_reason, reason);
        client_.reset();
    }
}

TEST_F(HostileServer, so_does_one_to_a_handshake)
{
    for (const std::string& answer : { nested(400'000), endless(), many_arrays() }) {
        events_ = {};
        MockServer server([] { return "+OK\r\n"; });
        server.reply_to("AUTH", answer);
        auto options = options_to(server.port());
        options.server.password = "secret";
        start(options);
        EXPECT_TRUE(loop_.run_until([&] { return events_.downs == 1; }));
        EXPECT_TRUE(events_.last_reason.starts_with("a reply is ")) << events_.last_reason;
        client_.reset();
    }
}

TEST_F(HostileServer, bytes_that_no_command_awaits_close_an_idle_connection)
{
    for (const std::string& bytes :
         { std::string(":1\r\n"), std::string("+OK\r\n-ERR\r\n"), std::string("$5\r\nab"),
           std::string("*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"),
           std::string(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"), endless() }) {
        events_ = {};
        MockServer server([] { return "$1\r\nx\r\n"; });
        start_ready(options_to(server.port()));
        EXPECT_EQ(ask("x"), "x");
        server.send_to_all(bytes);
        EXPECT_TRUE(loop_.run_until([&] { return server.connections() == 2; })) << bytes;
        EXPECT_TRUE(loop_.run_until([&] { return ask("x") == "x"; }));
        client_.reset();
    }
}

TEST_F(HostileServer, a_sentinel_that_sends_such_replies_is_left)
{
    for (const std::string& answer : { nested(400'000), endless(), many_arrays() }) {
        events_ = {};
        MockServer sentinel([] { return "+OK\r\n"; });
        sentinel.reply_to("SENTINEL", answer);
        start(options_to(sentinel.port(), redis::Topology::sentinel));
        ASSERT_TRUE(loop_.run_until([&] { return !events_.unknown.empty(); }));
        EXPECT_TRUE(events_.unknown[0].starts_with("a reply is ")) << events_.unknown[0];
        client_.reset();
    }
}

TEST_F(HostileServer, a_node_of_a_cluster_that_sends_such_maps_is_left)
{
    for (const std::string& answer : { nested(400'000), many_arrays() }) {
        events_ = {};
        MockServer node([] { return "+OK\r\n"; }, answer);
        start(options_to(node.port(), redis::Topology::cluster));
        ASSERT_TRUE(loop_.run_until([&] { return !events_.unknown.empty(); }));
        EXPECT_TRUE(events_.unknown[0].starts_with("a reply is ")) << events_.unknown[0];
        client_.reset();
    }
}

TEST_F(HostileServer, the_initial_load_of_the_fleet_survives_such_replies)
{
    for (const std::string& answer : { nested(400'000), endless(), many_arrays() }) {
        fleet::TestNode node;
        MockServer server([&] { return answer; });
        const fleet::FleetKeys keys("rl:");
        const auto reason = fleet::load_overrides(
            node.memory(), options_to(server.port()), keys, fleet::test_clock);
        EXPECT_NE(reason, "") << "it is not loaded";
    }
}

/// A reply to CLUSTER SLOTS with a master for each name, on this port.
std::string map_of(const std::vector<std::string>& hosts, int port)
{
    std::string text = "*" + std::to_string(hosts.size()) + "\r\n";
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        const std::size_t slot = i % 16'384;
        const bool last = i + 1 == hosts.size() && i < 16'384;
        text += slots_at(slot, last ? 16'383 : slot, port, hosts[i]);
    }
    return text;
}

std::vector<std::string> hosts(int count)
{
    std::vector<std::string> all;
    for (int i = 0; i < count; ++i) {
        all.push_back("127.0." + std::to_string(1 + i / 250) + "." + std::to_string(1 + i % 250));
    }
    return all;
}

class HostileCluster : public ClientTest {
protected:
    redis::Client& start_cluster(const MockServer& node)
    {
        auto options = options_to(node.port(), redis::Topology::cluster);
        options.most_masters = 20;
        return start(std::move(options));
    }
    int servers()
    {
        int count = 0;
        client_->each_server([&](redis::Server&) { ++count; });
        return count;
    }
};

TEST_F(HostileCluster, a_map_with_more_masters_than_allowed_is_refused)
{
    for (const int masters : { 20, 21, 20'000 }) {
        events_ = {};
        MockServer node(
            [] { return "+OK\r\n"; }, [&](int own) { return map_of(hosts(masters), own); });
        start_cluster(node);
        ASSERT_TRUE(
            loop_.run_until([&] { return !events_.unknown.empty() || !events_.known.empty(); }));
        EXPECT_EQ(events_.known.size(), masters == 20 ? 1U : 0U);
        EXPECT_EQ(servers(), masters == 20 ? 20 : 0);
        if (masters == 21) {
            EXPECT_EQ(events_.unknown[0], "its map has 21 masters, expected at most 20");
        }
        client_.reset();
    }
}

TEST_F(HostileCluster, redirections_add_no_more_masters_than_allowed)
{
    for (const std::string word : { "-MOVED ", "-ASK " }) {
        int port = 0;
        std::atomic<int> calls = 0;
        MockServer node(
            [&] {
                const auto host = "127.1." + std::to_string(++calls / 200) + "."
                    + std::to_string(1 + calls % 200);
                return word + "1 " + host + ":" + std::to_string(port) + "\r\n";
            },
            [](int own) { return map_of({ "127.0.0.1" }, own); });
        port = node.port();
        start_cluster(node);
        ASSERT_TRUE(loop_.run_until([&] { return servers() == 1; }));
        std::vector<std::unique_ptr<EchoCall>> all;
        for (int i = 0; i < 100; ++i) {
            all.push_back(std::make_unique<EchoCall>("x"));
            client_->send(*all.back());
        }
        loop_.run_until([&] {
            EXPECT_LE(servers(), 20);
            return std::all_of(
                all.begin(), all.end(), [](const auto& call) { return call->ends == 1; });
        });
        for (const auto& call : all) {
            EXPECT_EQ(call->ends, 1);
        }
        client_.reset();
    }
}

TEST_F(HostileCluster, a_name_that_no_host_can_have_makes_a_map_or_a_redirection_invalid)
{
    using namespace redis;
    const Endpoint source = announced_endpoint("10.0.0.1", 7000);
    for (const std::string& bad :
         { std::string("a\nb"), std::string("a\0b", 3), std::string("a b"), std::string("a\"b"),
           std::string("a]"), std::string("\xc3\xa4"), std::string("a/b"), std::string("a%eth0"),
           std::string(".redis.test"), std::string(256, 'a') }) {
        EXPECT_FALSE(parse_endpoint(bad + ":7000", source)) << bad;
        EXPECT_FALSE(read_redirection("MOVED 1 " + bad + ":7000", source)) << bad;
        EXPECT_FALSE(read_cluster_slots(*reply_of(map_of({ bad }, 7000)), source)) << bad;
    }
    for (const std::string& good : { std::string("redis_1"), std::string("Node-1.test"),
                                     std::string("2001:db8::1"), std::string(255, 'a') }) {
        EXPECT_TRUE(parse_endpoint(good + ":7000", source)) << good;
        EXPECT_TRUE(read_cluster_slots(*reply_of(map_of({ good }, 7000)), source)) << good;
    }
    EXPECT_FALSE(is_numeric_address(std::string_view("127.0.0.1\0x", 11)));
}

TEST_F(HostileServer, a_sentinel_that_names_one_master_after_another_does_not_take_all_connections)
{
    MockServer sentinel([] { return "+OK\r\n"; });
    sentinel.reply_to("SENTINEL", "*2\r\n" + bulk("127.0.0.1") + bulk("1"));
    sentinel.reply_to(
        "SUBSCRIBE", "*3\r\n" + bulk("subscribe") + bulk("+switch-master") + ":1\r\n");
    start(options_to(sentinel.port(), redis::Topology::sentinel));
    ASSERT_TRUE(loop_.run_until([&] { return !events_.known.empty(); }));
    std::string news;
    for (int i = 1; i < 500; ++i) {
        news += "*3\r\n" + bulk("message") + bulk("+switch-master")
            + bulk("main 127.0.0.1 1 127.0.0.1 " + std::to_string(i));
    }
    sentinel.send_to_all(news);
    ASSERT_TRUE(loop_.run_until([&] { return events_.known.size() > 10; }));
    loop_.run_for(100ms);  // a silent wait: for the other messages
    EXPECT_LT(events_.known.size(), 40U);
}

TEST_F(HostileServer, a_server_that_refuses_calls_and_then_hangs_is_noticed_without_a_call)
{
    MockServer server([] { return "-LOADING no use\r\n"; });
    auto options = options_to(server.port());
    options.server.timeout = 50ms;
    options.server.breaker_open = 50ms;
    start_ready(options);
    EXPECT_EQ(ask("x"), "error reply");
    ASSERT_TRUE(loop_.run_until([&] { return server.probes() == 2; }));  // of both handshakes
    loop_.run_for(50ms);                                                 // for the reply
    server.ignore_time();
    EXPECT_TRUE(loop_.run_until([&] {
        client_->probe();
        loop_.run_for(20ms);
        return server.connections() == 3;
    }));
}

TEST_F(HostileServer, a_replica_that_answers_calls_that_only_read_is_up)
{
    int calls = 0;
    MockServer server([&] {
        const bool writes = ++calls % 2 == 1;
        return writes ? "-READONLY no use\r\n" : "$1\r\nx\r\n";
    });
    start_ready(options_to(server.port()));
    ask_for_a_second();
    EXPECT_GT(calls, 4);
    EXPECT_EQ(events_.ups, 1);
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(events_.errors.size(), 1U);
}

TEST_F(HostileServer, a_server_that_answers_probes_and_refuses_calls_is_not_reported_as_up)
{
    MockServer server([] { return "-LOADING no use\r\n"; });
    auto options = options_to(server.port());
    start_ready(options);
    EXPECT_EQ(ask("x"), "error reply");
    ASSERT_TRUE(loop_.run_until([&] {
        client_->probe();
        loop_.run_for(20ms);
        return server.probes() != 0;
    }));
    loop_.run_for(50ms);  // a silent wait: for the reply
    EXPECT_EQ(events_.ups, 1);
    EXPECT_EQ(events_.downs, 1);
}

}  // namespace
}  // namespace ratelimit
