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
        charge_ = scripts_.add(charge_script(GetParam()));
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

    /// lease: how many tokens it asks for.
    Request& ask(
        std::int64_t cost, std::optional<microseconds> now = std::nullopt, std::int64_t lease = 0)
    {
        Request& request = make({ { "key", policy_, cost, false, now } }, false);
        RemoteLimit& limit = *request.limits[0];
        limit.scripts.refund = refund_;
        limit.scripts.charge = charge_;
        limit.owner = &owner_;
        limit.key = key_;
        if (limit.policy.block.count() > 0) {
            limit.block_key = "key:block";
            limit.scripts.block = block_;
            limit.scripts.sequences = nullptr;  // they have no block
        }
        request.lease_wanted = lease;
        EXPECT_TRUE(coalescer_->send(request));
        return request;
    }
    bool unsettled() const { return client_->unsettled().contains("key:block"); }
    static void settle(Request& request, std::int64_t cost)
    {
        ASSERT_NE(request.late, nullptr);
        request.late->settle(request.position.run, 0, cost);
    }
    static void refuse(Request& request)
    {
        ASSERT_NE(request.late, nullptr);
        request.late->refuse(request.position.run);
    }
    /// Waits until this much is counted.
    bool counts(std::int64_t expected, std::optional<microseconds> now = std::nullopt)
    {
        return loop_.run_until([&] {
            Request& peek = ask(0, now);
            EXPECT_TRUE(run());
            return peek.answered() && 10 - peek.remaining() == expected;
        });
    }

    struct Owner final : LimitOwner {
        void block_began() const noexcept override { ++began; }
        void refunded(std::string_view key) const noexcept override { refunds.emplace_back(key); }
        mutable int began = 0;
        mutable std::vector<std::string> refunds;
    };

    RedisServer server_;
    const std::string key_ = "key";
    Owner owner_;
    Policy policy_{ Algorithm::fixed_window, { 10, 24h }, {}, {} };
    redis::ScriptId refund_{};
    redis::ScriptId charge_{};
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
    EXPECT_TRUE(loop_.run_until([this] { return owner_.refunds == std::vector{ key_ }; }))
        << "what refusals of the key were remembered rests on a count that is gone";
}

TEST_P(Late, a_request_that_passed_is_charged_what_it_cost_when_its_reply_comes)
{
    server_.pause();
    Request& cheaper = ask(2);
    ASSERT_TRUE(run());
    settle(cheaper, 0);
    Request& dearer = ask(1);
    ASSERT_TRUE(run());
    settle(dearer, 5);
    requests_.clear();
    server_.resume();
    EXPECT_TRUE(counts(5));
}

TEST_P(Late, a_request_that_ends_after_its_late_reply_is_charged_what_it_cost)
{
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    server_.resume();
    ASSERT_TRUE(counts(3));
    settle(request, 1);
    EXPECT_TRUE(counts(1));
}

TEST_P(Late, a_request_that_redis_refuses_late_is_charged_nothing)
{
    ask(8);
    ASSERT_TRUE(run());
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    settle(request, 1);
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return coalescer_->idle() && client_->idle(); }));
    EXPECT_TRUE(counts(8));
}

TEST_P(Late, what_drained_before_a_late_refund_is_not_refunded_to_others)
{
    const microseconds before = node_time;
    const microseconds later = before + 3 * policy_.rate.window / 10;
    server_.pause();
    Request& refused = ask(3, before);
    ASSERT_TRUE(run());
    server_.resume();
    ASSERT_TRUE(counts(3, before));
    ask(3, later);
    ASSERT_TRUE(run());
    node_time = later;
    refuse(refused);
    EXPECT_TRUE(counts(3, later));
    ASSERT_TRUE(loop_.run_until([this] { return owner_.refunds.size() == 1; }));
    EXPECT_TRUE(counts(3, later));
    node_time = before;
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

TEST_P(Late, a_lease_stays_counted_although_another_request_of_its_call_did_not_wait)
{
    server_.pause();
    ask(1);
    loop_.run_for(100ms);
    Request& overdue = ask(1);
    loop_.run_for(100ms);
    Request& last = ask(1, std::nullopt, 5);  // in one call with `overdue`
    ASSERT_TRUE(loop_.run_until([&] { return overdue.failed(); }));
    server_.resume();
    ASSERT_TRUE(run());
    const bool leases = !last.lease.replies.empty();  // unless a slow machine let it fail, too
    EXPECT_TRUE(counts(leases ? 8 : 3));
    loop_.run_for(50ms);
    EXPECT_TRUE(counts(leases ? 8 : 3));
}

TEST_P(
    Late, a_request_that_is_refused_without_a_reply_is_refunded_although_its_call_refuses_another)
{
    ask(8);
    ASSERT_TRUE(run());
    server_.pause();
    ask(0);
    loop_.run_for(100ms);
    Request& overdue = ask(2);
    loop_.run_for(100ms);
    ask(2);
    ASSERT_TRUE(loop_.run_until([&] { return overdue.failed(); }));
    refuse(overdue);
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_TRUE(counts(8));
}

TEST_P(Late, a_request_that_passed_behind_one_of_cost_0_begins_no_block)
{
    policy_.block = 1h;
    server_.pause();
    ask(0);
    loop_.run_for(100ms);
    ask(3);  // in the next call of the key
    ASSERT_TRUE(run());
    server_.resume();
    EXPECT_TRUE(loop_.run_until([this] { return server_.ask({ "EXISTS", "key:block" }) == "1"; }));
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

TEST_P(Late, the_key_is_unsettled_until_what_was_refused_is_returned)
{
    policy_.block = 1h;
    ask(1);
    ASSERT_TRUE(run());
    EXPECT_FALSE(unsettled());
    server_.pause();
    Request& request = ask(3);
    ASSERT_TRUE(run());
    EXPECT_TRUE(unsettled()) << "a late reply may come";
    EXPECT_FALSE(client_->unsettled().contains("other:block"));
    refuse(request);
    requests_.clear();
    server_.resume();
    ASSERT_TRUE(counts(1));
    EXPECT_TRUE(loop_.run_until([this] { return !unsettled(); }));
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
    EXPECT_FALSE(unsettled());
    ASSERT_TRUE(loop_.run_until([this] { return unsettled(); })) << "it is tried again";
    ASSERT_EQ(server_.ask({ "CONFIG", "SET", "min-replicas-to-write", "0" }), "OK");

    Request& refused = ask(1);
    ASSERT_TRUE(run());
    ASSERT_TRUE(refused.limits[0]->begins_block);
    begin_block(*client_, *refused.limits[0], 0us, 0us);
    ASSERT_TRUE(loop_.run_until([this] { return owner_.began == 1; }));
    EXPECT_TRUE(loop_.run_until([this] { return !unsettled(); }));
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
    ASSERT_TRUE(loop_.run_until([this] { return !unsettled(); }));
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
