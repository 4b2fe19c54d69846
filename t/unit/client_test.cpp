// The client against a real Redis: calls, scripts, connecting.

#include "allocation_count.h"
#include "client_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>

#include <sys/socket.h>
#include <unistd.h>

namespace ratelimit {
namespace {

using redis::Fate;

class Client : public ClientTest {
protected:
    RedisServer server_;
};

TEST_F(Client, replies_reach_their_calls_in_order)
{
    auto& client = start_ready(options_to(server_.port()));
    std::deque<EchoCall> calls;
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_TRUE(client.send(calls.emplace_back(std::to_string(i))));
    }
    ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_EQ(calls[static_cast<std::size_t>(i)].answer, std::to_string(i));
    }
}

TEST_F(Client, calls_of_one_turn_are_written_together)
{
    auto& client = start_ready(options_to(server_.port()));
    const auto reads = [this] {
        const auto info = server_.ask({ "INFO", "stats" });
        return std::atol(info.c_str() + info.find("total_reads_processed:") + 22);
    };
    const auto before = reads();
    std::deque<EchoCall> calls;
    for (int i = 0; i < 100; ++i) {
        client.send(calls.emplace_back("x"));
    }
    ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
    EXPECT_LE(reads() - before, 5);  // one read of the calls, and those of INFO
}

TEST_F(Client, any_bytes_are_sent_and_received_unchanged)
{
    start_ready(options_to(server_.port()));
    for (const std::string& text :
         { std::string("a b"), std::string("\r\n$3\r\n"), std::string("\0x\0", 3), std::string(),
           std::string("{}{"), std::string(100'000, 'x') }) {
        EXPECT_EQ(ask(text), text);
    }
}

TEST_F(Client, the_reply_of_a_destroyed_call_is_dropped)
{
    auto& client = start_ready(options_to(server_.port()));
    auto gone = std::make_unique<EchoCall>("gone");
    EchoCall stays("stays");
    ASSERT_TRUE(client.send(*gone));
    ASSERT_TRUE(client.send(stays));
    gone.reset();
    ASSERT_TRUE(loop_.run_until([&] { return stays.ended(); }));
    EXPECT_EQ(stays.answer, "stays");
}

TEST_F(Client, a_call_may_destroy_others_and_send_new_ones_when_it_ends)
{
    auto& client = start_ready(options_to(server_.port()));
    EchoCall first("first");
    auto second = std::make_unique<EchoCall>("second");
    EchoCall third("third");
    first.then = [&] {
        second.reset();
        client.send(third);
    };
    client.send(first);
    client.send(*second);
    ASSERT_TRUE(loop_.run_until([&] { return third.ended(); }));
    EXPECT_EQ(third.answer, "third");
}

TEST_F(Client, closing_fails_every_call_once)
{
    auto& client = start_ready(options_to(server_.port()));
    server_.pause();
    std::deque<EchoCall> calls;
    for (int i = 0; i < 10; ++i) {
        client.send(calls.emplace_back("x"));
    }
    client.close();
    server_.resume();
    loop_.run_for(50ms);  // a silent wait: for replies that must be ignored
    for (const EchoCall& call : calls) {
        EXPECT_EQ(call.ends, 1);
        EXPECT_EQ(call.fate, Fate::lost);
    }
}

TEST_F(Client, may_be_closed_when_a_call_ends)
{
    auto& client = start_ready(options_to(server_.port()));
    EchoCall first("first");
    EchoCall second("second");
    first.then = [&] { client.close(); };
    client.send(first);
    client.send(second);
    ASSERT_TRUE(loop_.run_until([&] { return second.ended(); }));
    EXPECT_EQ(first.ends + second.ends, 2);
    EXPECT_EQ(second.fate, Fate::lost);
}

TEST_F(Client, a_call_sent_while_connecting_waits_and_is_answered)
{
    start(options_to(server_.port()));
    EXPECT_EQ(ask("early"), "early");
}

TEST_F(Client, several_connections_share_the_calls)
{
    auto options = options_to(server_.port());
    options.server.connections = 3;
    auto& client = start_ready(options);
    const auto clients = [this] {
        const auto info = server_.ask({ "INFO", "clients" });
        return std::atoi(info.c_str() + info.find("connected_clients:") + 18);
    };
    ASSERT_TRUE(loop_.run_until([&] { return clients() == 4; }));  // and the connection of INFO
    std::deque<EchoCall> calls;
    for (int i = 0; i < 300; ++i) {
        client.send(calls.emplace_back(std::to_string(i)));
    }
    ASSERT_TRUE(loop_.run_until([&] {
        return std::all_of(calls.begin(), calls.end(), [](auto& call) { return call.ended(); });
    }));
    EXPECT_EQ(calls.back().answer, "299");
}

TEST_F(Client, sends_the_text_of_a_script_only_until_the_server_has_it)
{
    scripts_.add("return ARGV[1]");
    const auto other = scripts_.add("return 'other'");
    scripts_.add("return 'never called'");
    auto& client = start_ready(options_to(server_.port()));
    const auto calls_of_both = [&] {
        const auto texts = server_.calls("eval");
        std::deque<EchoCall> calls;
        for (int i = 0; i < 100; ++i) {
            const auto script = i % 2 == 0 ? redis::ScriptId{} : other;
            client.send(calls.emplace_back(std::to_string(i), script));
            if (i % 10 == 9) {
                loop_.run_for(1ms);  // in several turns
            }
        }
        EXPECT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
        EXPECT_EQ(calls[98].answer, "98");
        EXPECT_EQ(calls[99].answer, "other");
        return server_.calls("eval") - texts;
    };
    EXPECT_GE(calls_of_both(), 2) << "of a new server";
    EXPECT_EQ(calls_of_both(), 0);
    server_.ask({ "SCRIPT", "FLUSH" });
    EXPECT_GE(calls_of_both(), 2);
    server_.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
    EXPECT_EQ(calls_of_both(), 1) << "the handshake's only: the server has the scripts";
    EXPECT_TRUE(events_.errors.empty());
    client.each_server([](redis::Server& each) { EXPECT_EQ(each.take_stats().error_replies, 0U); });
}

TEST_F(Client, counts_no_error_if_a_script_was_missing_and_its_caller_has_gone)
{
    auto& client = start_ready(options_to(server_.port()));
    auto call = std::make_unique<EchoCall>("x");
    client.send(*call);
    client.flush();
    call.reset();
    EXPECT_EQ(ask("y"), "y");
    EXPECT_TRUE(events_.errors.empty());
}

TEST_F(Client, is_reported_down_if_it_may_not_call_scripts)
{
    server_.ask({ "ACL", "SETUSER", "some", "on", "nopass", "~*", "+@all", "-eval" });
    auto options = options_to(server_.port());
    options.server.username = "some";
    options.server.password = "any";
    start(options);
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_TRUE(events_.last_reason.starts_with("NOPERM")) << events_.last_reason;
}

TEST_F(Client, allocates_nothing_for_a_call_once_it_has_run)
{
    auto& client = start_ready(options_to(server_.port()));
    std::vector<std::unique_ptr<EchoCall>> calls;
    for (int i = 0; i < 1000; ++i) {
        calls.push_back(std::make_unique<EchoCall>("short"));
        calls.back()->then = [] {};
    }
    const auto send = [&](std::size_t from, std::size_t to) {
        const std::size_t before = allocation_count();
        for (std::size_t i = from; i < to; ++i) {
            client.send(*calls[i]);
        }
        return allocation_count() - before;
    };
    send(0, 500);
    ASSERT_TRUE(loop_.run_until([&] { return calls[499]->ended(); }));
    EXPECT_EQ(send(500, 1000), 0U);
    ASSERT_TRUE(loop_.run_until([&] { return calls[999]->ended(); }));
}

TEST_F(Client, connects_to_a_unix_socket)
{
    redis::ClientOptions options;
    options.servers.emplace_back();
    options.servers[0].endpoint.unix_path = server_.socket_path();
    start_ready(options);
    EXPECT_EQ(ask("by socket"), "by socket");
}

TEST_F(Client, selects_its_database)
{
    scripts_.add("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]");
    auto options = options_to(server_.port());
    options.server.database = 7;
    start_ready(options);
    EXPECT_EQ(ask("here"), "here");
    EXPECT_EQ(server_.ask({ "GET", "key" }), "");
    EXPECT_NE(server_.ask({ "INFO", "keyspace" }).find("db7:keys=1"), std::string::npos);
}

TEST_F(ClientTest, connects_to_an_ipv6_address)
{
    RedisServer server({}, "127.0.0.1 ::1");
    auto options = options_to(server.port());
    options.servers[0].endpoint.host = "::1";
    start_ready(options);
    EXPECT_EQ(ask("six"), "six");
}

TEST_F(ClientTest, authenticates_with_a_password)
{
    RedisServer server("requirepass secret\n");
    auto options = options_to(server.port());
    options.server.password = "secret";
    start_ready(options);
    EXPECT_EQ(ask("in"), "in");
}

TEST_F(ClientTest, authenticates_as_a_user)
{
    RedisServer server;
    server.ask({ "ACL", "SETUSER", "me", "on", ">secret", "~*", "+@all" });
    auto options = options_to(server.port());
    options.server.username = "me";
    options.server.password = "secret";
    start_ready(options);
    EXPECT_EQ(ask("in"), "in");
}

TEST_F(ClientTest, a_wrong_password_is_reported_once)
{
    RedisServer server("requirepass secret\n");
    auto options = options_to(server.port());
    options.server.password = "wrong";
    start(options);
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason.substr(0, 9), "WRONGPASS");
    loop_.run_for(300ms);  // a silent wait: several attempts
    EXPECT_EQ(events_.downs, 1);
    EXPECT_EQ(events_.ups, 0);
}

/// The test's own clock is also the server's.
TEST_F(Client, knows_the_time_of_the_server_before_the_first_call)
{
    auto& client = start_ready(options_to(server_.port()));
    const auto known = client.server_time(0);
    ASSERT_TRUE(known);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    EXPECT_LE(*known, now);
    EXPECT_GT(*known, now - 10s);
}

}  // namespace
}  // namespace ratelimit
