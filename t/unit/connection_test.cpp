// What the client does about connections that are lost or refused, and about errors and garbage.

#include "client_fixture.h"
#include "mock_server.h"
#include "redis/context.h"

#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ratelimit {
namespace {

using redis::Failure;

TEST_F(ClientTest, a_server_that_is_not_there_is_told_once_and_used_when_it_comes)
{
    start(options_to(free_port()));
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason, "Connection refused");
    EchoCall call("x");
    EXPECT_FALSE(client_->send(call));
    EXPECT_FALSE(call.pending());
    loop_.run_for(300ms);
    EXPECT_EQ(events_.downs, 1);
}

TEST_F(ClientTest, a_unix_socket_that_is_not_there_is_told)
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
    // Takes connections into its backlog, and never says a word.
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    bind(listener, reinterpret_cast<sockaddr*>(&address), length);
    listen(listener, 1);
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);

    auto options = options_to(ntohs(address.sin_port));
    options.server.connect_timeout = 100ms;
    options.server.timeout = 50ms;
    start(options);
    const auto began = loop_.now();
    EXPECT_EQ(ask("x"), "no connection");
    EXPECT_GE(loop_.now() - began, 90ms);
    EXPECT_LT(loop_.now() - began, 1s);
    EXPECT_EQ(events_.last_reason, "timed out while connecting");
    close(listener);
}

TEST_F(ClientTest, a_lack_of_connections_of_our_own_is_no_silence_and_no_address_that_fails)
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
    loop_.run_for(1s);  // some attempts fail
    client.look_at_servers([](const redis::ServerView& view) {
        EXPECT_FALSE(view.breaker_open);
        EXPECT_EQ(view.endpoint.host, "127.0.0.1");
        EXPECT_GE(view.stats.connection_errors, 3U);
    });
    EXPECT_EQ(events_.downs, 1) << "it is reported once";
    loop_.has_room = true;
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    EXPECT_EQ(ask("x"), "x");
}

TEST_F(ClientTest, without_a_file_descriptor_no_server_is_silent)
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
    loop_.run_for(1s);
    setrlimit(RLIMIT_NOFILE, &usual);
    EXPECT_TRUE(down);
    EXPECT_EQ(events_.last_reason, redis::no_file_left);
    client.look_at_servers([](const redis::ServerView& view) { EXPECT_FALSE(view.breaker_open); });
    EXPECT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
}

TEST_F(ClientTest, like_errors_are_told_once)
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

TEST_F(ClientTest, what_was_in_flight_is_sent_again_once)
{
    MockServer server([] { return "close"; });
    EchoCall first("first");
    start_ready(options_to(server.port()));
    loop_.run_for(1200ms);  // so that the connection has proved good
    ASSERT_TRUE(client_->send(first));
    ASSERT_TRUE(loop_.run_until([&] { return first.ended(); }));
    EXPECT_EQ(first.failure, Failure::connection);
    EXPECT_EQ(first.ends, 1);
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, a_call_that_is_sent_again_has_what_is_left_of_its_timeout)
{
    int calls = 0;
    MockServer server([&]() -> std::string {
        if (++calls == 1) {
            std::this_thread::sleep_for(600ms);
            return "close";
        }
        return "";
    });
    auto options = options_to(server.port());
    options.server.timeout = 1s;
    start_ready(options);
    loop_.run_for(200ms);  // so that the connection has proved good
    const auto began = loop_.now();
    EXPECT_EQ(ask("x"), "no reply in time");
    EXPECT_LT(loop_.now() - began, 1400ms);
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, a_call_that_must_not_be_executed_twice_is_not_sent_again)
{
    int calls = 0;
    MockServer server([&] { return ++calls == 1 ? "$1\r\nx\r\n" : "close"; });
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "x");
    EchoCall refund("refund");
    refund.repeatable = false;
    ASSERT_TRUE(client_->send(refund));
    ASSERT_TRUE(loop_.run_until([&] { return refund.ended(); }));
    EXPECT_EQ(refund.failure, Failure::connection);
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, a_server_that_closes_every_connection_is_not_connected_to_in_a_loop)
{
    MockServer server([] { return "close"; });
    start_ready(options_to(server.port()));
    const auto end = loop_.now() + 1s;
    while (loop_.now() < end) {
        ask("x");
        loop_.run_for(1ms);
    }
    EXPECT_LE(server.connections(), 10);
}

TEST_F(ClientTest, a_server_that_takes_scripts_and_answers_no_call_is_not_told_with_each_connection)
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
            if (client_->send(call)) {
                loop_.run_until([&] { return call.ended(); });
            }
            loop_.run_for(1ms);
            return server.connections() == 6;
        });
        EXPECT_EQ(server.connections(), 6) << answer;
        // The first one may have been lost by chance.
        EXPECT_LE(events_.ups, 2) << answer;
        EXPECT_LE(events_.downs, 2) << answer;
        client_.reset();
    }
}

TEST_F(ClientTest, a_server_that_answers_calls_again_is_up_again)
{
    bool closes = true;
    MockServer server([&] { return closes ? "close" : "$1\r\nx\r\n"; });
    start_ready(options_to(server.port()));
    loop_.run_until([&] {
        ask("x");
        loop_.run_for(1ms);
        return server.connections() == 5;
    });
    EXPECT_EQ(events_.downs, 2);
    closes = false;
    EXPECT_TRUE(loop_.run_until([&] { return ask("x") == "x"; }));
    EXPECT_EQ(events_.ups, events_.downs + 1);
}

TEST_F(ClientTest, a_client_rests_when_nothing_is_in_flight_and_connects_again_with_the_next_call)
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

TEST_F(ClientTest, connections_are_named_and_a_server_that_forbids_it_is_used_all_the_same)
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

TEST_F(ClientTest, a_server_that_is_no_master_or_not_ready_is_connected_to_anew)
{
    for (const std::string& word :
         std::initializer_list<std::string>{ "READONLY", "LOADING", "MASTERDOWN", "NOAUTH" }) {
        events_ = {};
        MockServer server([&] { return "-" + word + " no use\r\n"; });
        start_ready(options_to(server.port()));
        EXPECT_EQ(ask("x"), "error reply");
        EXPECT_EQ(events_.downs, 1) << word;
        EXPECT_EQ(events_.last_reason, word + " no use");
        ASSERT_TRUE(loop_.run_until([&] { return server.connections() == 2; })) << word;
        client_.reset();
    }
}

TEST_F(ClientTest, a_server_that_takes_scripts_and_refuses_calls_is_told_once_and_asked_seldom)
{
    MockServer server([] { return "-READONLY no use\r\n"; });
    start_ready(options_to(server.port()));
    const auto end = loop_.now() + 1s;
    while (loop_.now() < end) {
        EchoCall call("x");
        if (client_->send(call)) {
            loop_.run_until([&] { return call.ended(); });
        }
        loop_.run_for(2ms);
    }
    EXPECT_EQ(events_.ups, 1);
    EXPECT_EQ(events_.downs, 1);
    EXPECT_LE(server.connections(), 10);
}

TEST_F(ClientTest, errors_between_good_answers_are_told_once_too)
{
    int calls = 0;
    MockServer server([&] { return ++calls % 2 == 0 ? "$1\r\nx\r\n" : "-OOM no\r\n"; });
    start_ready(options_to(server.port()));
    for (int i = 0; i < 20; ++i) {
        ask("x");
    }
    EXPECT_EQ(events_.errors.size(), 1U);
}

TEST_F(ClientTest, a_script_that_stays_missing_fails_its_call)
{
    MockServer server([] { return "-NOSCRIPT No matching script\r\n"; });
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "error reply");
    EXPECT_EQ(server.calls(), 2);
}

TEST_F(ClientTest, garbage_half_replies_and_closed_connections_fail_calls_and_nothing_else)
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

TEST_F(ClientTest, a_reply_that_nobody_asked_for_crashes_nothing)
{
    MockServer server([] { return "+one\r\n+two\r\n:3\r\n"; });
    start_ready(options_to(server.port()));
    EchoCall call("x");
    ASSERT_TRUE(client_->send(call));
    ASSERT_TRUE(loop_.run_until([&] { return call.ended(); }));
    EXPECT_EQ(call.answer, "one");
    loop_.run_for(20ms);
}

}  // namespace
}  // namespace ratelimit
