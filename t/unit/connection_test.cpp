// The client's reaction to lost and refused connections, errors and garbage.

#include "client_fixture.h"
#include "listener.h"
#include "mock_server.h"
#include "redis/context.h"

#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <hiredis/async.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ratelimit {
namespace {

using redis::Fate;

TEST(Context, without_a_buffer_which_hiredis_had_no_memory_for_takes_no_command)
{
    LibeventLoop loop;
    struct : redis::Context {
        bool takes_one_without_a_buffer(LibeventLoop& loop, std::uint16_t port)
        {
            std::string reason;
            const bool begun = connect(loop, redis::announced_endpoint("127.0.0.1", port), reason);
            char* const buffer = std::exchange(context().c.obuf, nullptr);
            const bool takes = issue("*1\r\n$4\r\nPING\r\n");
            context().c.obuf = buffer;
            return !begun || takes;
        }
        void connected() noexcept override {}
        void disconnected(std::string_view) noexcept override {}
        void call_replied(const redisReply&) noexcept override {}
        std::size_t longest_reply() const noexcept override { return 0; }
    } context;
    EXPECT_FALSE(context.takes_one_without_a_buffer(loop, 1));
}

TEST_F(ClientTest, a_server_that_is_not_running_is_reported_once)
{
    start(options_to(free_port()));
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason, "Connection refused");
    EchoCall call("x");
    EXPECT_FALSE(client_->send(call));
    EXPECT_FALSE(call.pending());
    loop_.run_for(300ms);  // a silent wait: several attempts
    EXPECT_EQ(events_.downs, 1);
}

TEST_F(ClientTest, a_missing_unix_socket_is_reported)
{
    redis::ClientOptions options;
    options.servers.emplace_back();
    options.servers[0].endpoint.unix_path = "/nonexistent/redis.sock";
    start(options);
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason, "No such file or directory");
}

TEST_F(ClientTest, connecting_is_bounded_by_its_timeout)
{
    const Listener listener;  // accepts connections into its backlog, and never sends a byte
    auto options = options_to(listener.port());
    options.server.connect_timeout = 100ms;
    options.server.timeout = 5s;
    const auto began = loop_.now();
    start(options);
    EXPECT_EQ(ask("x"), "no connection");
    EXPECT_GE(loop_.now() - began, 90ms);
    EXPECT_LT(loop_.now() - began, 5s) << "the call itself has more time";
    EXPECT_EQ(events_.last_reason, "timed out while connecting");
}

/// Replies to each of a client's first commands 150 ms after the one before, once.
void reply_slowly(int listener, std::initializer_list<std::string_view> replies)
{
    const int client = accept(listener, nullptr, nullptr);
    for (const std::string_view reply : replies) {
        std::this_thread::sleep_for(150ms);
        send(client, reply.data(), reply.size(), MSG_NOSIGNAL);
    }
    char byte = 0;
    while (recv(client, &byte, 1, 0) > 0) {
    }
    close(client);
}

TEST_F(ClientTest, each_step_of_an_attempt_to_connect_has_the_whole_timeout)
{
    const Listener listener;
    std::thread server([&] {
        reply_slowly(
            listener.socket(), { "+OK\r\n", "+OK\r\n", "*2\r\n$1\r\n9\r\n$1\r\n9\r\n", "+OK\r\n" });
    });
    auto options = options_to(listener.port());
    options.server.password = "any";
    options.server.database = 3;
    options.server.connect_timeout = 400ms;
    start(options);
    EXPECT_TRUE(loop_.run_until([this] { return events_.ups == 1; }, 5s)) << events_.last_reason;
    EXPECT_EQ(events_.downs, 0);
    client_.reset();
    server.join();
}

TEST_F(ClientTest, without_a_free_nginx_connection_no_breaker_opens_and_no_address_changes)
{
    RedisServer server;
    auto options = options_to(server.port());
    options.servers[0].endpoint.host_name = "redis.test";
    options.servers[0].endpoint.addresses = { "127.0.0.1", "127.0.0.3" };
    options.server.breaker_failures = 2;
    auto& client = start_ready(options);
    EXPECT_EQ(ask("x"), "x");
    loop_.has_room = false;
    server.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason, redis::no_connection_left);
    loop_.run_for(1s);  // a silent wait: some attempts fail
    client.each_server([](redis::Server& each) {
        EXPECT_FALSE(each.refuses());
        EXPECT_EQ(each.endpoint().host, "127.0.0.1");
        EXPECT_GE(each.take_stats().connection_errors, 3U);
    });
    EXPECT_EQ(events_.downs, 1) << "it is reported once";
    loop_.has_room = true;
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    EXPECT_EQ(ask("x"), "x");
}

TEST_F(ClientTest, without_a_free_file_descriptor_no_breaker_opens)
{
    RedisServer server;
    auto options = options_to(server.port());
    options.server.breaker_failures = 2;
    auto& client = start_ready(options);
    EXPECT_EQ(ask("x"), "x");
    rlimit usual{};
    getrlimit(RLIMIT_NOFILE, &usual);
    server.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
    const rlimit none{ 3, usual.rlim_max };
    setrlimit(RLIMIT_NOFILE, &none);
    const bool down = loop_.run_until([this] { return events_.downs == 1; });
    loop_.run_for(1s);  // a silent wait: some attempts fail
    setrlimit(RLIMIT_NOFILE, &usual);
    EXPECT_TRUE(down);
    EXPECT_EQ(events_.last_reason, redis::no_file_left);
    client.each_server([](redis::Server& each) { EXPECT_FALSE(each.refuses()); });
    EXPECT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
}

TEST_F(ClientTest, repeated_errors_are_reported_once)
{
    MockServer server([] { return "-OOM command not allowed\r\n"; });
    start_ready(options_to(server.port()));
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(ask("x"), "error reply");
    }
    EXPECT_EQ(events_.errors, std::vector<std::string>{ "OOM command not allowed" });
    EXPECT_EQ(server.connections(), 1);
}

TEST_F(ClientTest, errors_never_open_the_breaker)
{
    bool failing = true;
    MockServer server([&] { return failing ? "-OOM command not allowed\r\n" : "$1\r\nx\r\n"; });
    auto options = options_to(server.port());
    options.server.breaker_failures = 2;
    start_ready(options);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(ask("x"), "error reply");
    }
    failing = false;
    EXPECT_EQ(ask("x"), "x");
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(ClientTest, a_call_in_flight_on_a_lost_connection_is_retried_once)
{
    MockServer server([] { return "close"; });
    EchoCall first("first");
    start_ready(options_to(server.port()));
    loop_.run_for(1200ms);  // a silent wait: the connection counts as good then
    ASSERT_TRUE(finish(first));
    EXPECT_EQ(first.fate, Fate::lost);
    EXPECT_EQ(first.ends, 1);
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, a_retried_call_has_the_rest_of_its_timeout)
{
    bool lost = false;
    MockServer server([&]() -> std::string {
        if (!std::exchange(lost, true)) {
            std::this_thread::sleep_for(1s);
            return "close";
        }
        return "";
    });
    auto options = options_to(server.port());
    options.server.timeout = 2s;
    start_ready(options);
    loop_.run_for(200ms);  // a silent wait: the connection counts as good then
    const auto began = loop_.now();
    EXPECT_EQ(ask("x"), "no reply in time");
    EXPECT_LT(loop_.now() - began, 2500ms) << "it waits for less than a timeout of its own";
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, a_call_that_is_not_repeatable_is_not_retried)
{
    int calls = 0;
    MockServer server([&] { return ++calls == 1 ? "$1\r\nx\r\n" : "close"; });
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "x");
    EchoCall refund("refund");
    refund.repeatable = false;
    ASSERT_TRUE(finish(refund));
    EXPECT_EQ(refund.fate, Fate::lost);
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, reconnects_to_a_server_that_closes_every_connection_are_rare)
{
    MockServer server([] { return "close"; });
    start_ready(options_to(server.port()));
    ask_for_a_second();
    EXPECT_LE(server.connections(), 10);
}

TEST_F(
    ClientTest, a_server_that_loads_scripts_and_answers_no_call_is_not_reported_for_each_connection)
{
    for (const std::string& answer :
         std::initializer_list<std::string>{ "close", "!!\r\n", "$100\r\nhalf of it" }) {
        events_ = {};
        MockServer server([&] { return answer; });
        auto options = options_to(server.port());
        options.server.timeout = 20ms;
        options.server.breaker_open = 50ms;
        start_ready(options);
        loop_.run_until([&] {
            EchoCall call("x");
            finish(call);
            loop_.run_for(1ms);
            return server.connections() >= 6;
        });
        EXPECT_GE(server.connections(), 6) << answer;
        // The first connection may be taken for a good one that was lost.
        EXPECT_LE(events_.ups, 2) << answer;
        EXPECT_LE(events_.downs, 2) << answer;
        client_.reset();
    }
}

TEST_F(ClientTest, a_server_that_answers_calls_again_is_reported_as_up)
{
    bool closes = true;
    MockServer server([&] { return closes ? "close" : "$1\r\nx\r\n"; });
    start_ready(options_to(server.port()));
    loop_.run_until([&] {
        ask("x");
        loop_.run_for(1ms);
        return server.connections() >= 9;
    });
    EXPECT_EQ(events_.downs, 2);
    closes = false;
    EXPECT_TRUE(loop_.run_until([&] { return ask("x") == "x"; }));
    EXPECT_EQ(events_.ups, events_.downs + 1);
}

TEST_F(ClientTest, a_resting_client_closes_its_idle_connections_and_reconnects_with_the_next_call)
{
    RedisServer server;
    start_ready(options_to(server.port()));
    EchoCall call("x");
    ASSERT_TRUE(client_->send(call));
    client_->rest();
    EXPECT_TRUE(loop_.run_until([&] { return call.ended(); }));
    EXPECT_EQ(call.answer, "x");
    client_->rest();
    EXPECT_TRUE(is_left_alone(server));
    client_->rest();
    EXPECT_EQ(ask("again"), "again");
}

TEST_F(ClientTest, connections_are_named_unless_the_server_forbids_it)
{
    RedisServer server;
    start_ready(options_to(server.port()));
    EXPECT_NE(
        server.ask({ "CLIENT", "LIST" }).find("name=nginx-ratelimit-" + std::to_string(getpid())),
        std::string::npos);
    client_.reset();

    server.ask({ "ACL", "SETUSER", "default", "-client|setname" });
    events_ = {};
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "x");
    EXPECT_TRUE(events_.errors.empty());
}

TEST_F(ClientTest, a_server_that_is_no_master_or_not_ready_is_reconnected)
{
    for (const std::string& word :
         std::initializer_list<std::string>{ "READONLY", "LOADING", "MASTERDOWN", "NOAUTH" }) {
        events_ = {};
        MockServer server([&] { return "-" + word + " no use\r\n"; });
        start_ready(options_to(server.port()));
        EXPECT_EQ(ask("x"), "error reply");
        const bool reads = word == "READONLY";  // it answers what only reads: it is not away
        EXPECT_EQ(events_.downs, reads ? 0 : 1) << word;
        EXPECT_EQ(events_.last_reason, reads ? "" : word + " no use");
        ASSERT_TRUE(loop_.run_until([&] { return server.connections() == 2; })) << word;
        client_.reset();
    }
}

TEST_F(
    ClientTest,
    a_server_that_loads_scripts_and_refuses_calls_is_reported_once_and_reconnected_rarely)
{
    MockServer server([] { return "-LOADING no use\r\n"; });
    start_ready(options_to(server.port()));
    ask_for_a_second();
    EXPECT_EQ(events_.ups, 1);
    EXPECT_EQ(events_.downs, 1);
    EXPECT_LE(server.connections(), 10);
}

TEST_F(ClientTest, errors_between_good_replies_are_reported_once_too)
{
    int calls = 0;
    MockServer server([&] { return ++calls % 2 == 0 ? "$1\r\nx\r\n" : "-OOM no\r\n"; });
    start_ready(options_to(server.port()));
    for (int i = 0; i < 20; ++i) {
        ask("x");
    }
    EXPECT_EQ(events_.errors.size(), 1U);
}

TEST_F(ClientTest, a_script_that_is_missing_when_its_text_is_sent_fails_its_call)
{
    MockServer server([] { return "-NOSCRIPT No matching script\r\n"; });
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "error reply");
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, a_command_without_a_script_that_gets_NOSCRIPT_fails)
{
    struct Ping : redis::CommandCall {
        Ping() : CommandCall(redis::plain_command({ "PING" })) {}
        bool on_reply(const redisReply&) noexcept override { return true; }
        void ended(redis::Fate why) noexcept override { fate = why; }
        std::optional<redis::Fate> fate;
    };
    MockServer server([] { return ""; });
    server.reply_to("PING", "-NOSCRIPT No matching script\r\n");
    start_ready(options_to(server.port()));
    Ping ping;
    ASSERT_TRUE(client_->send(ping));
    EXPECT_TRUE(loop_.run_until([&] { return ping.fate == redis::Fate::refused; }));
}

TEST_F(ClientTest, garbage_partial_replies_and_closed_connections_fail_only_calls)
{
    for (const std::string& answer : std::initializer_list<std::string>{
             "HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n", "*-7\r\n", "$5\r\nabclose",
             "*2\r\n+aclose", "close", "$999999999999999999999\r\n", "%2\r\n+a\r\n", ":12:3\r\n",
             "$-2\r\n" }) {
        events_ = {};
        MockServer server([&] { return answer; });
        auto options = options_to(server.port());
        options.server.timeout = 200ms;
        start_ready(options);
        const auto end = ask("x");
        EXPECT_TRUE(end == "no connection" || end == "no reply in time") << answer << ": " << end;
        client_.reset();
    }
}

TEST_F(ClientTest, replies_without_a_call_are_dropped)
{
    MockServer server([] { return "+one\r\n+two\r\n:3\r\n"; });
    start_ready(options_to(server.port()));
    EchoCall call("x");
    ASSERT_TRUE(finish(call));
    EXPECT_EQ(call.answer, "one");
    loop_.run_for(20ms);  // a silent wait: for the other replies
}

}  // namespace
}  // namespace ratelimit
