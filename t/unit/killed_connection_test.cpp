// Calls whose connections are killed one after another, on a healthy server.

#include "client_fixture.h"
#include "mock_server.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

namespace ratelimit {
namespace {

class KilledConnection : public ClientTest {
protected:
    redis::Client& start_connected(int connections)
    {
        auto options = options_to(server_.port());
        options.server.connections = connections;
        auto& client = start_ready(options);
        wait_for_connections(connections);
        return client;
    }
    void wait_for_connections(int wanted)
    {
        ASSERT_TRUE(loop_.run_until([&] {
            const auto info = server_.ask({ "INFO", "clients" });
            return std::atoi(info.c_str() + info.find("connected_clients:") + 18) == wanted + 1;
        }));
    }
    void kill() { server_.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" }); }

    RedisServer server_;
};

TEST_F(KilledConnection, calls_of_several_connections_wait_for_a_new_one)
{
    for (const int connections : { 2, 3, 4 }) {
        events_ = {};
        auto& client = start_connected(connections);
        loop_.run_for(150ms);  // all have proved good
        kill();
        wait_for_connections(connections);
        EXPECT_EQ(ask("before"), "before");  // so that one of them has proved good again
        server_.ask({ "CLIENT", "PAUSE", "10000", "WRITE" });
        std::deque<EchoCall> calls;
        for (int i = 0; i < 20; ++i) {
            ASSERT_TRUE(client.send(calls.emplace_back("x")));
        }
        loop_.run_for(5ms);  // they are in flight
        kill();
        server_.ask({ "CLIENT", "UNPAUSE" });
        ASSERT_TRUE(loop_.run_until([&] {
            return std::all_of(
                calls.begin(), calls.end(), [](const EchoCall& call) { return call.ended(); });
        }));
        for (const EchoCall& call : calls) {
            EXPECT_EQ(call.answer, "x") << connections << " connections";
        }
        EXPECT_EQ(events_.downs, 0);
        client_.reset();
    }
}

TEST_F(KilledConnection, is_reconnected_at_once_also_when_it_is_killed_before_its_first_reply)
{
    int calls = 0;
    MockServer server([&] { return ++calls == 1 || calls > 4 ? "$1\r\nx\r\n" : "close"; });
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("first"), "x");
    EXPECT_EQ(ask("lost twice"), "no connection") << "Redis may have executed it twice";
    EXPECT_EQ(ask("lost once"), "x");
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(server.connections(), 4);
}

TEST_F(KilledConnection, calls_not_yet_sent_when_it_is_lost_can_still_be_retried)
{
    int calls = 0;
    MockServer server([&] {
        return ++calls == 1 ? "$1\r\nx\r\n!!\r\n" : calls == 2 ? "close" : "$1\r\ny\r\n";
    });
    auto& client = start_ready(options_to(server.port()));
    EchoCall first("first");
    EchoCall second("second");
    first.then = [&] { client.send(second); };  // before the connection is found to be lost
    ASSERT_TRUE(client.send(first));
    ASSERT_TRUE(loop_.run_until([&] { return second.ended(); }));
    EXPECT_EQ(second.answer, "y");
    EXPECT_EQ(server.connections(), 3);
}

TEST_F(KilledConnection, a_call_that_expired_while_the_process_was_stopped_gets_its_whole_timeout)
{
    auto options = options_to(server_.port());
    options.server.timeout = 200ms;
    auto& client = start_ready(options);
    loop_.run_for(150ms);  // the connection has proved good
    server_.ask({ "CLIENT", "PAUSE", "10000", "WRITE" });
    EchoCall call("x");
    ASSERT_TRUE(client.send(call));
    loop_.run_for(5ms);  // it is in flight
    kill();
    server_.ask({ "CLIENT", "UNPAUSE" });
    server_.pause();
    std::thread network([&] {
        std::this_thread::sleep_for(650ms);
        server_.resume();  // so that connecting takes 50 ms
    });
    loop_.stand_still(600ms);
    EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }));
    network.join();
    EXPECT_EQ(call.answer, "x");
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(KilledConnection, together_with_lost_scripts_fails_no_call)
{
    auto& client = start_connected(2);
    std::atomic<bool> stop{ false };
    std::thread flushes([&] {
        while (!stop) {
            const auto start = std::chrono::steady_clock::now();
            server_.ask({ "SCRIPT", "FLUSH" });
            // A slow machine gets time to load a script and use it between two flushes.
            const auto took = std::chrono::steady_clock::now() - start;
            std::this_thread::sleep_for(2ms + 10 * took);
        }
    });
    bool all_answered = true;
    std::uint64_t lost = 0;
    std::uint64_t reconnects = 0;
    for (int turn = 1; turn <= 100 && all_answered; ++turn) {
        std::deque<EchoCall> calls;
        for (int i = 0; i < 20; ++i) {
            EXPECT_TRUE(client.send(calls.emplace_back("x")));
        }
        loop_.run_for(1ms);
        if (turn % 5 == 0) {
            kill();
            lost += 2;
        }
        // The next kill meets connections that have worked.
        all_answered = loop_.run_until([&] {
            const bool all = std::all_of(calls.begin(), calls.end(), [](const EchoCall& call) {
                return call.answer == "x";
            });
            client.each_server(
                [&](redis::Server& each) { reconnects += each.take_stats().reconnects; });
            return all && reconnects >= lost;
        });
    }
    stop = true;
    flushes.join();
    EXPECT_TRUE(all_answered);
    EXPECT_TRUE(events_.errors.empty());
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(ClientTest, a_script_that_is_missing_is_sent_with_the_call)
{
    int calls = 0;
    MockServer server(
        [&] { return ++calls == 1 ? "-NOSCRIPT No matching script\r\n" : "$6\r\ndigest\r\n"; });
    server.reply_to("EVAL", "$4\r\ntext\r\n");
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "text");
    EXPECT_EQ(ask("x"), "digest");
    EXPECT_EQ(calls, 2);
    EXPECT_TRUE(events_.errors.empty());
}

TEST_F(KilledConnection, calls_behind_a_readonly_have_their_replies_or_are_sent_again)
{
    int calls = 0;
    MockServer server([&] {
        ++calls;
        return calls == 1 || calls == 3 ? "-READONLY no use\r\n" : "$1\r\nx\r\n";
    });
    start_ready(options_to(server.port()));
    std::deque<EchoCall> all;
    for (int i = 0; i < 5; ++i) {
        ASSERT_TRUE(client_->send(all.emplace_back("a")));
    }
    for (EchoCall& call : all) {
        EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }));
    }
    EXPECT_EQ(all[0].fate, redis::Fate::refused);
    for (std::size_t i = 1; i < all.size(); ++i) {
        EXPECT_EQ(all[i].answer, "x") << i;
    }
    EXPECT_EQ(calls, 6) << "only the one that was refused, too, is sent again";
}

}  // namespace
}  // namespace ratelimit
