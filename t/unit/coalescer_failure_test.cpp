// Concurrent checks of the same keys when Redis hangs, is slow, stops or sends invalid replies.

#include "coalescer_fixture.h"
#include "reply_bytes.h"
#include "resp_reply.h"

#include <algorithm>
#include <thread>

namespace ratelimit {
namespace {

using End = ShardPart::End;

class FailingChecks : public CoalescerTest {
protected:
    void send_many(int times)
    {
        for (int i = 0; i < times; ++i) {
            send();
        }
    }

    /// Sends a request and records how long it waits.
    void send_timed(std::deque<milliseconds>& waited)
    {
        auto& wait = waited.emplace_back(-1);
        const auto began = loop_.now();
        Request& request = make({ Asked{} });
        request.then = [this, began, &wait] { wait = loop_.now() - began; };
        if (!coalescer_->send(request)) {
            wait = 0ms;
        }
    }
};

class HeldChecks : public FailingChecks {
protected:
    /// Redis hangs when the client is ready. A breaker that opens stays open.
    void begin_paused(milliseconds timeout, int failures, milliseconds connect_timeout = 10s)
    {
        auto options = options_to(server_.port());
        options.server.timeout = timeout;
        options.server.connect_timeout = connect_timeout;
        options.server.breaker_failures = failures;
        options.server.breaker_open = 60s;
        begin(options);
        server_.pause();
    }

    RedisServer server_;
};

TEST_F(HeldChecks, fail_in_time_after_the_call_before_them_has_timed_out)
{
    auto options = options_to(server_.port());
    options.server.timeout = 1500ms;
    options.server.breaker_failures = 100'000;
    begin(options);
    server_.pause();
    std::deque<milliseconds> waited;
    for (int i = 0; i < 60; ++i) {
        send_timed(waited);
        send_timed(waited);
        loop_.run_for(10ms);
    }
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 120);
    for (const auto wait : waited) {
        EXPECT_GE(wait, 1480ms) << "each has its own timeout";
        EXPECT_LT(wait, 2800ms) << "much longer than the timeout";
    }
    server_.resume();
    requests_.clear();
    ASSERT_TRUE(loop_.run_until([this] {
        send();
        return run() && requests_.back()->answered();
    }));
}

TEST_F(HeldChecks, count_together_as_one_timeout)
{
    begin_paused(300ms, 2);
    send_many(10);  // in one turn of the loop
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 10);
    EXPECT_EQ(events_.downs, 0);
    send_many(10);
    ASSERT_TRUE(run());
    EXPECT_EQ(events_.downs, 1) << "the second timeout";
    EXPECT_FALSE(coalescer_->send(make({ Asked{} })));
    server_.resume();
}

TEST_F(HeldChecks, do_not_wait_for_a_call_when_the_breaker_is_open)
{
    begin_paused(2s, 1);
    send({ .key = "first" });
    loop_.run_for(1s);
    Request& second = send({ .key = "second" });
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    ASSERT_EQ(second.end, End::pending);
    EXPECT_FALSE(coalescer_->send(make({ { .key = "second" } })));
    requests_.pop_back();
    ASSERT_TRUE(run());
    server_.resume();
}

TEST_F(HeldChecks, fewer_than_the_breakers_failures_do_not_open_it)
{
    begin_paused(300ms, 11);
    send_many(10);
    ASSERT_TRUE(run());
    EXPECT_EQ(events_.downs, 0);
    server_.resume();
}

TEST_F(HeldChecks, wait_for_a_connection_although_others_failed_unsent_after_a_timeout)
{
    begin_paused(1500ms, 1, 20s);
    send();
    loop_.run_for(1300ms);
    send();  // it waits for the first call, and would be overdue 1.3 s after its timeout
    ASSERT_TRUE(run());
    ASSERT_EQ(count(End::failed), 2) << "the breaker is open";
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return !client_->refuses(0); }));

    server_.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
    server_.pause();
    loop_.run_for(100ms);
    send();
    ASSERT_TRUE(sent_.back()) << "it waits for the new connection";
    loop_.run_for(2500ms);
    EXPECT_EQ(requests_.back()->end, End::pending) << "it may wait until connect_timeout is over";
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_TRUE(requests_.back()->answered());
}

TEST_F(HeldChecks, fail_at_once_when_the_connection_is_lost)
{
    begin(options_to(server_.port()));
    server_.pause();
    send_many(10);
    loop_.run_for(10ms);
    server_.kill();
    const auto began = loop_.now();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 10);
    EXPECT_LT(loop_.now() - began, 1500ms);
    server_.start();
    ASSERT_TRUE(loop_.run_until([this] { return events_.ups == 2; }));
    send();
    ASSERT_TRUE(run());
    EXPECT_EQ(requests_.back()->remaining(), 99) << "Redis has restarted without data";
}

TEST_F(HeldChecks, are_retried_on_another_connection_when_theirs_is_lost)
{
    auto options = options_to(server_.port());
    options.server.connections = 4;
    begin(options);
    const auto all_connected = [this] {
        const auto clients = server_.ask({ "CLIENT", "LIST", "TYPE", "normal" });
        return std::count(clients.begin(), clients.end(), '\n')
            >= 5;  // and the connection of CLIENT LIST
    };
    ASSERT_TRUE(loop_.run_until(all_connected));
    loop_.run_for(50ms);  // a silent wait: for the handshakes
    send_many(10);
    server_.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::pending), 0);
}

TEST_F(HeldChecks, end_when_the_client_is_closed)
{
    auto options = options_to(server_.port());
    options.server.connections = 3;
    begin(options);
    server_.pause();
    send_many(10);
    client_->close();
    EXPECT_EQ(count(End::failed), 10);
    for (const auto& request : requests_) {
        EXPECT_EQ(request->ends, 1);
    }
    server_.resume();
}

TEST_F(HeldChecks, that_wait_for_a_connection_fail_when_none_can_be_made)
{
    auto options = options_to(server_.port());
    options.server.connect_timeout = 400ms;
    options.server.timeout = 100ms;
    begin(options);
    server_.kill();
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs == 1; }));
    std::deque<milliseconds> waited;
    for (int i = 0; i < 100; ++i) {
        send_timed(waited);
        send_timed(waited);
        loop_.run_for(5ms);
    }
    ASSERT_TRUE(run());
    for (const auto wait : waited) {
        EXPECT_LT(wait, 1s);
    }
}

TEST_F(FailingChecks, are_decided_by_a_slow_server_that_replies_in_time)
{
    int answered = 0;
    MockServer server([&answered] {
        std::this_thread::sleep_for(1500ms);
        return bulk(
            answered++ == 0 ? doubles({ 1, 99, 5'000'000, 0, 0, 0 })
                            : doubles({ 9, 0, 1, 90, 5'000'000, 0, 0, 0 }));
    });
    auto options = options_to(server.port());
    options.server.timeout = 2500ms;
    options.server.connect_timeout = 3s;
    begin(options);
    send_many(10);
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::answered), 10);
    EXPECT_EQ(server.calls(), 2);
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(FailingChecks, all_fail_when_their_call_gets_an_error)
{
    MockServer server([] { return "-OOM command not allowed\r\n"; });
    auto options = options_to(server.port());
    options.server.breaker_failures = 1;
    begin(options);
    send_many(10);
    ASSERT_TRUE(run());
    EXPECT_EQ(count(End::failed), 10);
    EXPECT_EQ(server.calls(), 2);
    EXPECT_EQ(events_.downs, 0) << "a reply is no timeout";
}

TEST_F(FailingChecks, all_fail_when_their_call_gets_a_malformed_reply)
{
    for (const std::string answer : { "abc", "", "12345678" }) {
        MockServer server([&] { return bulk(answer); });
        events_ = {};
        scripts_ = {};
        sequences_.clear();
        begin(options_to(server.port()));
        send_many(10);
        ASSERT_TRUE(run());
        EXPECT_EQ(count(End::failed), 10);
        EXPECT_EQ(server.calls(), 2);
        EXPECT_EQ(events_.errors, std::vector<std::string>{ "malformed reply" });
        std::uint64_t errors = 0;
        client_->each_server(
            [&](redis::Server& each) { errors += each.take_stats().error_replies; });
        EXPECT_EQ(errors, 10U);
        EXPECT_EQ(server.connections(), 1) << "a new connection would be no better";
        requests_.clear();
        coalescer_.reset();
        client_.reset();
    }
}

TEST_F(FailingChecks, a_malformed_reply_after_good_ones_ends_the_connection)
{
    // As after a proxy that lost a command: the replies are those of other commands.
    const std::string good = bulk(doubles({ 1, 99, 5'000'000, 0, 0, 0 }));
    std::atomic<int> replies{ 0 };
    MockServer server([&] { return ++replies == 2 ? bulk("12345678") : good; });
    begin(options_to(server.port()));
    for (const auto end : { End::answered, End::failed, End::answered }) {
        requests_.clear();
        send_many(1);
        ASSERT_TRUE(run());
        EXPECT_EQ(count(end), 1) << "after reply " << replies;
        EXPECT_TRUE(loop_.run_until([&] { return server.connections() == (replies < 2 ? 1 : 2); }));
    }
    EXPECT_EQ(events_.downs, 0);
}

TEST_F(FailingChecks, all_fail_when_their_connection_is_dropped)
{
    for (const std::string answer :
         { "close", "-READONLY no\r\n", "-LOADING wait\r\n", "!!\r\n" }) {
        MockServer server([&] { return answer; });
        events_ = {};
        scripts_ = {};
        sequences_.clear();
        auto options = options_to(server.port());
        options.server.timeout = 500ms;
        options.server.connect_timeout = 500ms;
        begin(options);
        send_many(10);
        ASSERT_TRUE(run());
        EXPECT_EQ(count(End::failed), 10) << answer;
        requests_.clear();
        client_.reset();
        coalescer_.reset();
    }
}

}  // namespace
}  // namespace ratelimit
