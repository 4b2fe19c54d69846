// Requests that Redis counts, but that were refused before its reply came: they are refunded. Those
// that passed meanwhile stay counted.

#include "check/late_reply.h"
#include "check/settlement.h"
#include "coalescer_fixture.h"
#include "redis_server.h"

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

class Late : public CoalescerTest, public testing::WithParamInterface<Algorithm> {
protected:
    void SetUp() override
    {
        refund_ = scripts_.add(refund_script());
        block_ = scripts_.add(block_script());
        auto options = options_to(server_.port());
        options.server.timeout = 300ms;
        options.server.breaker_failures = 1000;
        begin(std::move(options));
        load_scripts(server_);
        policy_.algorithm = GetParam();
        if (keeps_arrival_time(GetParam())) {
            policy_.burst = GetParam() == Algorithm::token_bucket ? 10 : 9;
        }
    }

    Request& ask(std::int64_t cost)
    {
        Request& request = make({ { "key", policy_, cost } }, false);
        RemoteLimit& limit = *request.limits[0];
        limit.scripts.refund = refund_;
        if (limit.policy.block.count() > 0) {
            limit.block_key = "key:block";
            limit.scripts.block = block_;
            limit.scripts.sequences = nullptr;  // they have no block
        }
        EXPECT_TRUE(coalescer_->send(request));
        return request;
    }
    static void refuse(Request& request)
    {
        ASSERT_NE(request.late, nullptr);
        request.late->refuse(request.position.run);
    }
    /// Waits until this much is counted.
    bool counts(std::int64_t expected)
    {
        return loop_.run_until([&] {
            Request& peek = ask(0);
            EXPECT_TRUE(run());
            return peek.answered() && 10 - peek.remaining() == expected;
        });
    }

    RedisServer server_;
    Policy policy_{ Algorithm::fixed_window, { 10, 24h }, {}, {} };
    redis::ScriptId refund_{};
    redis::ScriptId block_{};
};

TEST_P(Late, a_request_that_was_refused_is_refunded_when_its_reply_comes)
{
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    EXPECT_TRUE(request.failed());
    refuse(request);
    requests_.clear();
    server_.resume();
    EXPECT_TRUE(counts(0));
}

TEST_P(Late, a_request_that_was_refused_is_refunded_after_a_stall_that_replaced_the_connection)
{
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    refuse(request);
    requests_.clear();
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs > 0; }));
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return server_.calls("evalsha") > 0; }));
    EXPECT_TRUE(counts(0));
}

TEST_P(Late, a_request_that_passed_in_such_a_stall_stays_counted)
{
    server_.pause();
    ask(3);
    ASSERT_TRUE(run());
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs > 0; }));
    server_.resume();
    EXPECT_TRUE(counts(3));
}

TEST_P(Late, a_request_that_passed_stays_counted)
{
    server_.pause();
    ask(3);
    ASSERT_TRUE(run());
    server_.resume();
    EXPECT_TRUE(counts(3));
}

TEST_P(Late, a_request_that_passed_before_it_was_counted_begins_no_block)
{
    policy_.block = 1h;
    server_.pause();
    ask(3);
    ASSERT_TRUE(run());
    server_.resume();
    ASSERT_TRUE(counts(3));
    ASSERT_TRUE(loop_.run_until([this] { return server_.ask({ "EXISTS", "key:block" }) == "1"; }));
    Request& refused = ask(8);
    ASSERT_TRUE(run());
    EXPECT_FALSE(refused.state().granted);
    EXPECT_FALSE(refused.limits[0]->begins_block);
}

TEST_P(Late, a_request_that_passed_begins_no_block_if_its_reply_is_lost)
{
    policy_.block = 1h;
    server_.pause();
    ask(3);
    ASSERT_TRUE(run());
    server_.kill();
    server_.start();
    load_scripts(server_);
    EXPECT_TRUE(loop_.run_until([this] { return server_.ask({ "EXISTS", "key:block" }) == "1"; }));
}

TEST_P(Late, a_request_that_is_refused_after_its_late_reply_is_refunded_then)
{
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    server_.resume();
    ASSERT_TRUE(counts(3));
    refuse(request);
    EXPECT_TRUE(counts(0));
}

TEST_P(Late, of_requests_that_shared_a_call_those_that_were_refused_are_refunded)
{
    server_.pause();
    Request& first = ask(1);
    for (int i = 0; i < 4; ++i) {
        ask(2);
    }
    first.then = [this] { server_.pause(); };
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_TRUE(first.answered());
    EXPECT_EQ(count(ShardPart::End::failed), 4);
    refuse(*requests_[1]);
    refuse(*requests_[3]);
    server_.resume();
    EXPECT_TRUE(counts(1 + 2 * 2)) << "those of the first, and of two that passed";
}

TEST_P(Late, a_refund_that_redis_refuses_after_the_timeout_is_made_later)
{
    Request& request = ask(3);
    ASSERT_TRUE(run());
    server_.ask({ "SCRIPT", "FLUSH" });
    server_.pause();
    const RemoteLimit& limit = *request.limits[0];
    refund(*client_, limit, { 3, limit.taken_at, limit.state.reset }, loop_.now());
    ASSERT_TRUE(loop_.run_until([this] { return client_->take_failed() == 1; }));
    server_.resume();
    EXPECT_TRUE(counts(0)) << "the reply is NOSCRIPT: nothing was executed";
}

TEST_P(Late, a_refund_that_redis_makes_after_the_timeout_is_made_once)
{
    Request& first = ask(3);
    Request& second = ask(3);
    ASSERT_TRUE(run());
    EXPECT_TRUE(first.answered() && second.answered());
    server_.pause();
    const RemoteLimit& limit = *first.limits[0];
    refund(*client_, limit, { 3, limit.taken_at, limit.state.reset }, loop_.now());
    ASSERT_TRUE(loop_.run_until([this] { return client_->take_failed() == 1; }));
    server_.resume();
    EXPECT_TRUE(counts(3));
    loop_.run_for(600ms);  // longer than the pause before a call is sent again
    EXPECT_TRUE(counts(3));
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, Late,
    testing::Values(
        Algorithm::fixed_window, Algorithm::sliding_window_counter, Algorithm::sliding_window_log,
        Algorithm::sliding_window_buckets, Algorithm::token_bucket, Algorithm::leaky_bucket,
        Algorithm::gcra),
    [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace ratelimit
