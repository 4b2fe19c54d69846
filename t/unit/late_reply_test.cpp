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

    Request& ask(std::int64_t cost, std::optional<microseconds> now = std::nullopt)
    {
        Request& request = make({ { "key", policy_, cost, false, now } }, false);
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

    struct CountedBlocks final : BlockOwner {
        void block_began() const noexcept override { ++began; }
        mutable int began = 0;
    };

    RedisServer server_;
    CountedBlocks blocks_;
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

TEST_P(Late, the_client_is_unsettled_until_what_was_refused_is_returned)
{
    policy_.block = 1h;
    ask(1);
    ASSERT_TRUE(run());
    EXPECT_FALSE(client_->unsettled());
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    EXPECT_TRUE(client_->unsettled()) << "a late reply may come";
    refuse(request);
    requests_.clear();
    server_.resume();
    ASSERT_TRUE(counts(1));
    EXPECT_TRUE(loop_.run_until([this] { return !client_->unsettled(); }));
}

TEST_P(Late, a_block_that_began_before_a_refund_could_be_executed_is_lifted)
{
    policy_.block = 1h;
    Request& passed = ask(10);
    ASSERT_TRUE(run());
    ASSERT_TRUE(passed.answered());
    const RemoteLimit& limit = *passed.limits[0];
    ASSERT_EQ(server_.ask({ "CONFIG", "SET", "min-replicas-to-write", "1" }), "OK");
    refund(*client_, limit, { 10, limit.taken_at, limit.state.reset }, 0us);
    EXPECT_FALSE(client_->unsettled());
    ASSERT_TRUE(loop_.run_until([this] { return client_->unsettled(); })) << "it is tried again";
    ASSERT_EQ(server_.ask({ "CONFIG", "SET", "min-replicas-to-write", "0" }), "OK");

    Request& refused = ask(1);
    ASSERT_TRUE(run());
    ASSERT_TRUE(refused.limits[0]->begins_block);
    begin_block(*client_, *refused.limits[0], 0us, 0us, blocks_);
    ASSERT_TRUE(loop_.run_until([this] { return blocks_.began == 1; }));
    EXPECT_TRUE(loop_.run_until([this] { return !client_->unsettled(); }));
    Request& next = ask(1);
    ASSERT_TRUE(run());
    EXPECT_TRUE(next.state().granted) << "it is returned, and the key is not blocked";
}

TEST_P(Late, a_key_is_spared_for_the_latest_of_the_losses_of_one_turn)
{
    policy_.block = 1h;
    const microseconds noon{ 1'795'500'000s };
    const microseconds day = policy_.counted_at_most();
    ask(1, noon);
    ASSERT_TRUE(run());
    RemoteLimit& limit = *requests_.front()->limits[0];
    for (const microseconds lost : { noon, noon + 5 * day, noon + 2 * day }) {
        limit.now = lost;
        spare(*client_, limit);
    }
    ASSERT_TRUE(loop_.run_until([this] { return !client_->unsettled(); }));
    ask(1, noon + 6 * day - 1s);
    ASSERT_TRUE(run());
    EXPECT_TRUE(requests_.back()->limits[0]->spared);
    ask(1, noon + 6 * day + 1min);
    ASSERT_TRUE(run());
    EXPECT_FALSE(requests_.back()->limits[0]->spared);
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
