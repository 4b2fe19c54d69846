// The client when its server stops, hangs or restarts.

#include "client_fixture.h"

#include <deque>

namespace ratelimit {
namespace {

using redis::Fate;

class FailingRedis : public ClientTest {
protected:
    redis::Client& start_loaded(redis::ClientOptions options)
    {
        start_ready(std::move(options));
        load_scripts(server_);
        return *client_;
    }

    RedisServer server_;
};

TEST_F(FailingRedis, a_call_times_out_and_its_late_reply_is_dropped)
{
    auto options = options_to(server_.port());
    options.server.timeout = 500ms;
    options.server.breaker_open = 60s;  // the connection is kept, however long the machine takes
    start_ready(options);
    server_.pause();
    EchoCall late("late");
    ASSERT_TRUE(finish(late));
    EXPECT_EQ(late.fate, Fate::overdue);
    server_.resume();
    EXPECT_TRUE(loop_.run_until([this] { return ask("next") == "next"; }));
    EXPECT_EQ(late.ends, 1);
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(FailingRedis, what_is_given_up_when_a_fifth_connection_falls_silent_may_send_calls)
{
    // Redis answers on other connections meanwhile.
    struct Blocking final : LateEcho {
        void write(redis::CommandBuffer& command) const override
        {
            command.whole(redis::plain_command({ "BLPOP", "nothing", "0" }));
        }
    };
    auto options = options_to(server_.port());
    options.server.timeout = 100ms;
    options.server.breaker_open = 100ms;
    options.server.breaker_failures = 100;
    auto& client = start_loaded(options);
    std::deque<Blocking> silent;
    std::deque<EchoCall> sent;
    for (int i = 0; i < 6; ++i) {
        EXPECT_EQ(ask("well"), "well");
        silent.emplace_back().late.then = [&] {
            EchoCall& call = sent.emplace_back("what is given up");
            if (!client.send(call)) {
                call.ended(Fate::lost);
            }
        };
        ASSERT_TRUE(client.send(silent.back()));
        loop_.run_for(20ms);       // a silent wait: it is sent
        loop_.stand_still(400ms);  // the timers are late
        ASSERT_TRUE(loop_.run_until([&] { return silent.back().ended(); }));
        EXPECT_TRUE(loop_.run_until([&] { return events_.losses == i + 1; }));
    }
    for (std::size_t i = 0; i < silent.size(); ++i) {
        EXPECT_EQ(silent[i].late.ended(), i < 2) << i << ": four are kept";
    }
    EXPECT_EQ(silent[0].late.fate, Fate::lost);
    EXPECT_EQ(silent[1].late.fate, Fate::lost);
    EXPECT_TRUE(loop_.run_until([&] { return sent.size() == 2 && sent.back().ended(); }));
    client.close();
}

TEST_F(FailingRedis, every_call_to_a_hung_server_times_out_in_time)
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
        EXPECT_EQ(call.fate, Fate::overdue);
    }
    server_.resume();
    EXPECT_TRUE(loop_.run_until([this] { return ask("after") == "after"; }));
}

TEST_F(FailingRedis, a_call_sent_after_others_timed_out_times_out_as_soon)
{
    auto options = options_to(server_.port());
    options.server.timeout = 300ms;
    start_ready(options);
    server_.pause();
    EchoCall first("first");
    ASSERT_TRUE(finish(first));
    EchoCall second("second");
    const auto began = loop_.now();
    ASSERT_TRUE(finish(second));
    EXPECT_LT(loop_.now() - began, 2s);  // and not at the stall bound, three seconds
    server_.resume();
}

TEST_F(FailingRedis, the_breaker_opens_after_consecutive_timeouts_and_then_no_call_waits)
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
    EXPECT_EQ(events_.downs, 1);
    EXPECT_TRUE(loop_.run_until([this] { return ask("after") == "after"; }));
}

TEST_F(FailingRedis, calls_in_flight_together_count_as_one_timeout)
{
    auto options = options_to(server_.port());
    options.server.timeout = 3s;  // longer than a busy machine takes to send the calls
    options.server.breaker_failures = 2;
    options.server.breaker_open = 10s;  // the connection is kept
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

TEST_F(FailingRedis, the_breaker_closes_with_a_late_reply_and_starts_counting_again)
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
        ASSERT_TRUE(loop_.run_until([&] { return events_.ups == i + 1; }))
            << "before the end of breaker_open";
    }
}

TEST_F(FailingRedis, a_connection_is_probed_while_the_breaker_is_open)
{
    auto options = options_to(server_.port());
    options.server.timeout = 30ms;
    options.server.breaker_failures = 1;
    options.server.breaker_open = 60s;
    start_loaded(options);
    server_.pause();
    EXPECT_EQ(ask("x"), "no reply in time");
    loop_.run_for(500ms);
    server_.resume();
    ASSERT_TRUE(loop_.run_until([&] { return events_.ups == 2; }));
    EXPECT_GE(server_.calls("time"), 3);
    // Behind the TIME that the late reply causes.
    ASSERT_TRUE(loop_.run_until([this] { return ask("x") == "x"; }));
    const auto probes = server_.calls("time");
    loop_.run_for(400ms);
    EXPECT_EQ(server_.calls("time"), probes) << "no more probes once it is closed";
}

TEST_F(FailingRedis, a_process_that_was_stopped_itself_fails_no_call_with_a_reply)
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
        loop_.stand_still(400ms);  // in the turn that writes the calls
        loop_.run_for(1ms);
        loop_.stand_still(400ms);  // and when replies may have arrived
        ASSERT_TRUE(loop_.run_until([&] { return calls.back().ended(); }));
        for (const EchoCall& call : calls) {
            EXPECT_EQ(call.fate, std::nullopt);
        }
        loop_.run_for(500ms);  // a silent wait: a stop is excused once for each run of a timer
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
            EXPECT_EQ(call.fate, std::nullopt);
            EXPECT_EQ(call.ends, 1);
        }
    }
    EXPECT_EQ(events_.downs, 0);
    EXPECT_EQ(events_.ups, 1) << "the server was never reported as down";
}

TEST_F(FailingRedis, a_server_that_stays_silent_is_reported_and_reconnected)
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

TEST_F(FailingRedis, calls_in_flight_fail_when_it_is_killed_and_new_ones_work_when_it_is_back)
{
    auto& client = start_ready(options_to(server_.port()));
    server_.pause();
    EchoCall lost("lost");
    client.send(lost);
    loop_.run_for(10ms);
    server_.kill();
    ASSERT_TRUE(loop_.run_until([&] { return lost.ended(); }));
    EXPECT_EQ(lost.fate, Fate::lost);
    EXPECT_EQ(events_.downs, 1);
    loop_.run_for(200ms);  // a silent wait: some attempts fail

    server_.start();
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    EXPECT_EQ(ask("back"), "back");
    EXPECT_EQ(events_.downs, 1);
}

TEST_F(FailingRedis, a_failed_call_may_send_another_or_close_the_client)
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

}  // namespace
}  // namespace ratelimit
