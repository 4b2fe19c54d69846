// A server that tries to crash its client, or to fill its memory.

#include "client_fixture.h"
#include "fleet_fixture.h"
#include "mock_server.h"
#include "redis/reply_limits.h"

#include <fstream>

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
    for (const auto& [answer, reason] :
         { std::pair{ nested(400'000), "a reply is nested too deep" },
           { endless(), "a reply is larger than any to its command" },
           { many_arrays(), "a reply is larger than any to its command" },
           { "+" + std::string(std::size_t{ 1 } << 20U, 'x'),
             "a reply is larger than any to its command" } }) {
        events_ = {};
        MockServer server([answer = answer] { return answer; });
        start_ready(options_to(server.port()));
        const auto before = peak_memory();
        EXPECT_EQ(ask("x"), "no connection") << reason;
        EXPECT_LT(peak_memory(), before + (std::size_t{ 8 } << 20U)) << reason;
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
        auto options = options_to(sentinel.port());
        options.topology = redis::Topology::sentinel;
        options.master = "main";
        start(options);
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
        auto options = options_to(node.port());
        options.topology = redis::Topology::cluster;
        start(options);
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

}  // namespace
}  // namespace ratelimit
