// The client when its server stops, hangs, restarts, or is none.

#include "client_fixture.h"
#include "mock_server.h"

#include <deque>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ratelimit {
namespace {

using redis::Failure;

class FailingRedis : public ClientTest {
protected:
    RedisServer server_;
};

TEST_F(FailingRedis, a_call_times_out_and_its_late_answer_is_nobody_elses)
{
    auto options = options_to(server_.port());
    options.server.timeout = 500ms;
    auto& client = start_ready(options);
    server_.pause();
    EchoCall late("late");
    ASSERT_TRUE(client.send(late));
    ASSERT_TRUE(loop_.run_until([&] { return late.ended(); }));
    EXPECT_EQ(late.failure, Failure::timeout);
    server_.resume();
    EXPECT_EQ(ask("next"), "next");
    EXPECT_EQ(late.ends, 1);
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(FailingRedis, every_call_of_a_hang_times_out_in_time)
{
    auto options = options_to(server_.port());
    options.server.timeout = 100ms;
    options.server.breaker_failures = 10'000;
    auto& client = start_ready(options);
    server_.pause();
    const auto began = loop_.now();
    std::deque<EchoCall> calls;
    for (int i = 0; i < 1000; ++i) {
        client.send(calls.emplace_back("x"));
        if (i % 100 == 0) {
            loop_.run_for(5ms);
        }
    }
    ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
    EXPECT_LT(loop_.now() - began, 2s);
    for (const EchoCall& call : calls) {
        EXPECT_EQ(call.failure, Failure::timeout);
    }
    server_.resume();
    EXPECT_TRUE(loop_.run_until([this] { return ask("after") == "after"; }));
}

TEST_F(FailingRedis, a_call_sent_after_others_timed_out_times_out_as_soon)
{
    auto options = options_to(server_.port());
    options.server.timeout = 300ms;
    auto& client = start_ready(options);
    server_.pause();
    EchoCall first("first");
    client.send(first);
    ASSERT_TRUE(loop_.run_until([&] { return first.ended(); }));
    EchoCall second("second");
    const auto began = loop_.now();
    client.send(second);
    ASSERT_TRUE(loop_.run_until([&] { return second.ended(); }));
    EXPECT_LT(loop_.now() - began, 2s);  // and not at the stall bound, three seconds
    server_.resume();
}

TEST_F(FailingRedis, the_breaker_opens_after_silences_in_a_row_and_then_nothing_waits)
{
    auto options = options_to(server_.port());
    options.server.timeout = 200ms;
    options.server.breaker_failures = 3;
    options.server.breaker_open = 60s;
    auto& client = start_ready(options);
    server_.pause();
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(ask("x"), "no reply in time");
    }
    EXPECT_EQ(events_.downs, 1);
    EchoCall call("x");
    EXPECT_FALSE(client.send(call));
    EXPECT_EQ(ask("x"), "not sent");

    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; })) << "by the late replies";
    EXPECT_EQ(ask("after"), "after");
    EXPECT_EQ(events_.downs, 1);
}

TEST_F(FailingRedis, calls_that_wait_together_are_one_silence)
{
    auto options = options_to(server_.port());
    options.server.timeout = 1s;
    options.server.breaker_failures = 2;
    auto& client = start_ready(options);
    server_.pause();
    std::deque<EchoCall> calls;
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(client.send(calls.emplace_back("x")));
        loop_.run_for(1ms);
    }
    ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
    EXPECT_EQ(events_.downs, 0);
    EchoCall call("x");
    EXPECT_TRUE(client.send(call));
    server_.resume();
    ASSERT_TRUE(loop_.run_until([&] { return call.ended(); }));
}

TEST_F(FailingRedis, the_breaker_closes_with_a_late_reply_and_counts_again)
{
    auto options = options_to(server_.port());
    options.server.timeout = 30ms;
    options.server.breaker_failures = 1;
    options.server.breaker_open = 60s;
    start_ready(options);
    for (int i = 1; i <= 3; ++i) {
        server_.pause();
        EXPECT_EQ(ask("x"), "no reply in time");
        EXPECT_EQ(ask("x"), "not sent");
        EXPECT_EQ(events_.downs, i);
        server_.resume();
        const auto began = loop_.now();
        ASSERT_TRUE(loop_.run_until([&] { return events_.ups == i + 1; }));
        EXPECT_LT(loop_.now() - began, 1s) << "the breaker's time is not waited for";
    }
}

TEST_F(FailingRedis, a_connection_is_probed_while_the_breaker_is_open)
{
    auto options = options_to(server_.port());
    options.server.timeout = 30ms;
    options.server.breaker_failures = 1;
    options.server.breaker_open = 60s;
    start_ready(options);
    server_.pause();
    EXPECT_EQ(ask("x"), "no reply in time");
    loop_.run_for(500ms);
    server_.resume();
    ASSERT_TRUE(loop_.run_until([&] { return events_.ups == 2; }));
    EXPECT_GE(server_.calls("time"), 3);
    const auto probes = server_.calls("time");
    loop_.run_for(400ms);
    EXPECT_EQ(server_.calls("time"), probes) << "and no more when it is closed";
}

TEST_F(FailingRedis, a_loop_that_was_stopped_itself_fails_no_call_that_has_been_answered)
{
    auto options = options_to(server_.port());
    options.server.timeout = 200ms;
    options.server.connect_timeout = 300ms;
    auto& client = start_ready(options);
    for (int i = 0; i < 5; ++i) {
        std::deque<EchoCall> calls;
        for (int sent = 0; sent < 100; ++sent) {
            ASSERT_TRUE(client.send(calls.emplace_back(std::string(2000, 'x'))));
        }
        std::this_thread::sleep_for(400ms);  // in the turn that writes them
        loop_.run_for(1ms);
        std::this_thread::sleep_for(400ms);  // when they may be answered
        ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
        for (const EchoCall& call : calls) {
            EXPECT_EQ(call.failure, std::nullopt);
        }
        loop_.run_for(500ms);  // a stop is excused once for each time that a timer runs
    }
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(FailingRedis, a_connection_that_is_killed_fails_no_call)
{
    auto& client = start_ready(options_to(server_.port()));
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(ask("before"), "before");
        server_.pause();
        std::deque<EchoCall> calls;
        for (int sent = 0; sent < 50; ++sent) {
            ASSERT_TRUE(client.send(calls.emplace_back("x")));
        }
        loop_.run_for(5ms);
        server_.resume();
        server_.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
        ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
        for (const EchoCall& call : calls) {
            EXPECT_EQ(call.failure, std::nullopt);
            EXPECT_EQ(call.ends, 1);
        }
    }
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(events_.ups, 1) << "it was up all the time";
}

TEST_F(FailingRedis, a_server_silent_for_long_is_left_and_connected_to_anew)
{
    auto options = options_to(server_.port());
    options.server.timeout = 20ms;
    start_ready(options);
    server_.pause();
    EXPECT_EQ(ask("x"), "no reply in time");
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    EXPECT_EQ(events_.last_reason, "no reply");
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    EXPECT_TRUE(loop_.run_until([this] { return ask("back") == "back"; }));
}

TEST_F(FailingRedis, calls_in_flight_fail_when_it_is_killed_and_go_on_when_it_is_back)
{
    auto& client = start_ready(options_to(server_.port()));
    server_.pause();
    EchoCall lost("lost");
    client.send(lost);
    loop_.run_for(10ms);
    server_.kill();
    ASSERT_TRUE(loop_.run_until([&] { return lost.ended(); }));
    EXPECT_EQ(lost.failure, Failure::connection);
    EXPECT_EQ(events_.downs, 1);
    loop_.run_for(200ms);  // some attempts fail

    server_.start();
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    EXPECT_EQ(ask("back"), "back");
    EXPECT_EQ(events_.downs, 1);
}

TEST_F(FailingRedis, a_failed_call_may_begin_another_or_close_the_client)
{
    auto& client = start_ready(options_to(server_.port()));
    EchoCall first("first");
    EchoCall second("second");
    first.then = [&] {
        EXPECT_FALSE(client.send(second));  // between two attempts
        client.close();
    };
    server_.pause();
    client.send(first);
    loop_.run_for(10ms);
    server_.kill();
    ASSERT_TRUE(loop_.run_until([&] { return first.ended(); }));
    EXPECT_EQ(second.ends, 0);
}

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

TEST_F(ClientTest, a_call_that_must_not_be_executed_twice_is_not_sent_again)
{
    int calls = 0;
    MockServer server([&] { return ++calls == 1 ? "$1\r\nx\r\n" : "close"; });
    start_ready(options_to(server.port()));
    EXPECT_EQ(ask("x"), "x");
    EchoCall refund("refund");
    refund.may_repeat = false;
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
