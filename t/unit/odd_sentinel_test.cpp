// Sentinels with replies that no real sentinel sends.

#include "client_fixture.h"
#include "mock_server.h"
#include "resp_reply.h"

namespace ratelimit {
namespace {

class OddSentinel : public ClientTest {
protected:
    OddSentinel() : sentinel_([] { return "+OK\r\n"; })
    {
        sentinel_.reply_to("SENTINEL", address_of(master_.port()));
        sentinel_.reply_to("SUBSCRIBE", "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n");
    }

    static std::string address_of(int port)
    {
        return "*2\r\n" + bulk("127.0.0.1") + bulk(std::to_string(port));
    }

    void report(const std::string& what, const std::string& news)
    {
        sentinel_.send_to_all("*3\r\n" + bulk("message") + bulk(what) + bulk(news));
    }

    redis::Client& start_sentinel(int connections = 1)
    {
        auto options = options_to(sentinel_.port(), redis::Topology::sentinel);
        options.server.connections = connections;
        options.server.breaker_failures = 1000;
        options.server.timeout = 1s;
        options.server.connect_timeout = 1s;
        return start(std::move(options));
    }

    RedisServer master_;
    MockServer sentinel_;
};

TEST_F(OddSentinel, a_valid_reply_names_the_master)
{
    start_sentinel();
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.known.size(), 1U);
    EXPECT_EQ(sentinel_.connections(), 1);
}

TEST_F(OddSentinel, a_client_that_rested_finds_the_master_again)
{
    start_sentinel();
    EXPECT_EQ(ask("x"), "x");
    for (int i = 0; i < 2; ++i) {
        client_->rest();
        EXPECT_TRUE(is_left_alone(master_));
        EXPECT_EQ(ask("again"), "again");
        EXPECT_TRUE(loop_.run_until([&] { return sentinel_.connections() == 2 + i; }));
    }
}

TEST_F(OddSentinel, another_master_may_have_lost_counts)
{
    RedisServer heir;
    start_sentinel();
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.losses, 0);
    const auto address = [](const RedisServer& server) {
        return " 127.0.0.1 " + std::to_string(server.port());
    };
    sentinel_.reply_to("SENTINEL", address_of(heir.port()));
    report("+switch-master", "main" + address(master_) + address(heir));
    EXPECT_TRUE(loop_.run_until([this] { return events_.losses == 1; }));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(heir.calls("evalsha"), 1) << "the text of the script follows";
}

TEST_F(OddSentinel, a_promoted_replica_is_the_master_before_the_others_follow_it)
{
    RedisServer heir;
    start_sentinel();
    EXPECT_EQ(ask("x"), "x");
    const auto address = [](const RedisServer& server) {
        return " 127.0.0.1 " + std::to_string(server.port());
    };
    for (const std::string name : { "other", "main" }) {
        report(
            "+promoted-slave", "slave replica" + address(heir) + " @ " + name + address(master_));
    }
    EXPECT_TRUE(loop_.run_until([this] { return events_.losses == 1; }));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(heir.calls("evalsha"), 1);
    report("+switch-master", "main" + address(master_) + address(heir));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.losses, 1) << "the same master";
}

TEST_F(OddSentinel, each_sentinel_that_hangs_delays_the_search_by_a_moment_only)
{
    RedisServer hung;
    RedisServer other;
    hung.pause();
    other.pause();
    for (int i = 0; i < 3; ++i) {  // the search may start at any of them
        auto options = options_to(hung.port(), redis::Topology::sentinel);
        options.servers.push_back(server_at(other.port()));
        options.servers.push_back(server_at(sentinel_.port()));
        const auto began = loop_.now();
        start(std::move(options));
        EXPECT_EQ(ask("x"), "x");
        EXPECT_LT(loop_.now() - began, 1500ms) << "less than two of their timeouts";
    }
    hung.resume();
    other.resume();
}

TEST_F(OddSentinel, an_invalid_address_is_reported_once)
{
    for (const std::string nonsense :
         { "*-1\r\n", "$-1\r\n", "+OK\r\n", "*0\r\n", "*2\r\n:1\r\n:2\r\n",
           "*2\r\n$1\r\nx\r\n$1\r\nx\r\n", "-ERR no such thing\r\n", "garbage\r\n" }) {
        events_ = {};
        MockServer sentinel([] { return "+OK\r\n"; });
        sentinel.reply_to("SENTINEL", nonsense);
        start(options_to(sentinel.port(), redis::Topology::sentinel));
        EchoCall call("x");
        ASSERT_TRUE(finish(call)) << nonsense;
        EXPECT_EQ(call.fate, redis::Fate::unsent);
        ASSERT_TRUE(loop_.run_until([&] { return sentinel.connections() == 2; })) << nonsense;
        EXPECT_EQ(events_.unknown.size(), 1U) << nonsense;
        EXPECT_TRUE(events_.known.empty());
        client_.reset();
    }
}

TEST_F(OddSentinel, invalid_subscription_replies_and_messages_do_not_lose_the_master)
{
    for (const std::string nonsense :
         { "*3\r\n:1\r\n:2\r\n:3\r\n", "*0\r\n", "+OK\r\n+OK\r\n",
           "*3\r\n$7\r\nmessage\r\n:1\r\n$-1\r\n", "*1\r\n$11\r\nunsubscribe\r\n",
           "+OK\r\n*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$11\r\nmain 1 2 3 4\r\n" }) {
        events_ = {};
        MockServer sentinel([] { return "+OK\r\n"; });
        sentinel.reply_to("SENTINEL", address_of(master_.port()));
        sentinel.reply_to("SUBSCRIBE", nonsense);
        start(options_to(sentinel.port(), redis::Topology::sentinel));
        EXPECT_TRUE(loop_.run_until([&] { return !events_.known.empty(); })) << nonsense;
        loop_.run_for(50ms);  // a silent wait: for the invalid replies
        client_.reset();
    }
}

TEST_F(OddSentinel, a_forbidden_channel_is_reported_once_and_retried_each_half_second)
{
    sentinel_.reply_to("SUBSCRIBE", "-NOPERM No permissions to access a channel\r\n");
    start_sentinel();
    ASSERT_TRUE(loop_.run_until([this] { return !events_.unknown.empty(); }));
    EXPECT_EQ(events_.unknown.front(), "NOPERM No permissions to access a channel");
    auto last = loop_.now();
    for (int attempts = 2; attempts < 6; ++attempts) {
        ASSERT_TRUE(loop_.run_until([&] { return sentinel_.connections() >= attempts; }));
        EXPECT_LT(loop_.now() - last, 900ms) << "also after many failures";
        last = loop_.now();
    }
    EXPECT_EQ(events_.unknown.size(), 1U);
}

TEST_F(OddSentinel, searches_end_when_a_read_only_master_is_writable_again)
{
    scripts_.add("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]");
    start_sentinel(2);
    ASSERT_EQ(ask("before"), "before");
    master_.ask({ "REPLICAOF", "127.0.0.1", std::to_string(free_port()) });
    EXPECT_EQ(ask("meanwhile"), "no reply in time") << "the call waits for another master";
    ASSERT_TRUE(loop_.run_until([this] { return sentinel_.connections() > 1; }))
        << "the master is searched again";
    master_.ask({ "REPLICAOF", "NO", "ONE" });
    ASSERT_TRUE(loop_.run_until([this] { return ask("after") == "after"; }));

    loop_.run_for(700ms);  // a silent wait: one more search was due
    const int searches = sentinel_.connections();
    loop_.run_for(1800ms);  // a silent wait: time for another search
    EXPECT_EQ(sentinel_.connections(), searches);
}

}  // namespace
}  // namespace ratelimit
