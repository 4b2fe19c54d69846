// Requests that Redis counts, but that were refused before its reply came: they are refunded. Those
// that passed meanwhile stay counted.

#include "late_fixture.h"

namespace ratelimit {
namespace {

TEST_P(Late, a_request_that_was_refused_is_refunded_when_its_reply_comes)
{
    Request& request = asked_in_vain(3);
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
    Request& cheaper = asked_in_vain(2);
    settle(cheaper, 0);
    Request& dearer = asked(1);
    settle(dearer, 5);
    requests_.clear();
    server_.resume();
    EXPECT_TRUE(counts(5));
}

TEST_P(Late, a_request_that_ends_after_its_late_reply_is_charged_what_it_cost)
{
    Request& request = asked_in_vain(3);
    server_.resume();
    ASSERT_TRUE(counts(3));
    settle(request, 1);
    EXPECT_TRUE(counts(1));
}

TEST_P(Late, a_request_that_redis_refuses_late_is_charged_nothing)
{
    asked(8);
    Request& request = asked_in_vain(3);
    settle(request, 1);
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return coalescer_->idle() && client_->idle(); }));
    EXPECT_TRUE(counts(8));
}

TEST_P(Late, what_drained_before_a_late_refund_is_not_refunded_to_others)
{
    const microseconds before = node_time;
    const microseconds later = before + 3 * policy_.rate.window / 10;
    Request& refused = asked_in_vain(3, before);
    server_.resume();
    ASSERT_TRUE(counts(3, before));
    asked(3, later);
    node_time = later;
    refuse(refused);
    EXPECT_TRUE(counts(3, later));
    ASSERT_TRUE(loop_.run_until([this] { return owner_.refunds.size() == 1; }));
    EXPECT_TRUE(counts(3, later));
    node_time = before;
}

TEST_P(Late, a_request_that_was_refused_is_refunded_after_a_stall_that_replaced_the_connection)
{
    Request& request = asked_in_vain(3);
    refuse(request);
    requests_.clear();
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs > 0; }));
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return server_.calls("evalsha") > 0; }));
    EXPECT_TRUE(counts(0));
}

TEST_P(Late, a_request_that_passed_in_such_a_stall_stays_counted)
{
    asked_in_vain(3);
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs > 0; }));
    server_.resume();
    EXPECT_TRUE(counts(3));
}

TEST_P(Late, a_request_that_passed_stays_counted)
{
    asked_in_vain(3);
    server_.resume();
    EXPECT_TRUE(counts(3));
}

TEST_P(Late, a_request_that_passed_before_it_was_counted_begins_no_block)
{
    policy_.block = 1h;
    asked_in_vain(3);
    server_.resume();
    ASSERT_TRUE(counts(3));
    ASSERT_TRUE(loop_.run_until([this] { return server_.ask({ "EXISTS", "key:block" }) == "1"; }));
    Request& refused = asked(8);
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
    Late, a_request_is_refunded_although_another_one_of_its_call_has_a_part_of_the_lease_it_wanted)
{
    asked(5);
    server_.pause();
    ask(0);
    loop_.run_for(100ms);
    Request& overdue = ask(1);
    loop_.run_for(100ms);
    Request& last = ask(1, std::nullopt, 5);
    ASSERT_TRUE(loop_.run_until([&] { return overdue.failed(); }));
    refuse(overdue);
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_TRUE(counts(last.lease.replies.empty() ? 6 : 9));
}

TEST_P(
    Late, a_request_that_is_refused_without_a_reply_is_refunded_although_its_call_refuses_another)
{
    asked(8);
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

TEST_P(Late, a_request_that_passed_beside_one_of_cost_0_begins_no_block)
{
    policy_.block = 1h;
    server_.pause();
    Request& first = ask(1);
    ask(0);
    ask(3);  // in one call with that of cost 0
    first.then = [this] { server_.pause(); };
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_EQ(count(ShardPart::End::failed), 2);
    server_.resume();
    EXPECT_TRUE(loop_.run_until([this] { return server_.ask({ "EXISTS", "key:block" }) == "1"; }));
}

TEST_P(Late, a_request_of_cost_0_spares_no_key_behind_one_that_cost_something)
{
    policy_.block = 1h;
    server_.pause();
    Request& first = ask(3);
    Request& peek = ask(0);
    first.then = [this] { server_.pause(); };
    server_.resume();
    ASSERT_TRUE(run());
    EXPECT_TRUE(first.answered() && peek.failed());
    server_.resume();
    ASSERT_TRUE(counts(3));
    ASSERT_TRUE(loop_.run_until([this] { return !unsettled(); }));
    EXPECT_EQ(server_.ask({ "EXISTS", "key:block" }), "0");
}

TEST_P(Late, a_request_that_passed_begins_no_block_if_its_reply_is_lost)
{
    policy_.block = 1h;
    asked_in_vain(3);
    server_.kill();
    server_.start();
    load_scripts(server_);
    EXPECT_TRUE(loop_.run_until([this] { return server_.ask({ "EXISTS", "key:block" }) == "1"; }));
}

TEST_P(Late, a_request_that_passed_leaves_blocks_to_others_if_redis_refuses_it_late)
{
    policy_.block = 1h;
    server_.ask({ "CONFIG", "SET", "maxmemory", "1" });
    asked_in_vain(3);
    server_.resume();
    ASSERT_TRUE(loop_.run_until([this] { return client_->idle(); }));
    server_.ask({ "CONFIG", "SET", "maxmemory", "0" });
    ASSERT_TRUE(loop_.run_until([this] { return !unsettled(); }));
    EXPECT_EQ(server_.ask({ "EXISTS", "key:block" }), "0") << "nothing was counted";
}

TEST_P(Late, the_key_is_unsettled_until_what_was_refused_is_returned)
{
    policy_.block = 1h;
    asked(1);
    EXPECT_FALSE(unsettled());
    Request& request = asked_in_vain(3);
    EXPECT_TRUE(unsettled()) << "a late reply may come";
    EXPECT_FALSE(client_->unsettled().contains("other:block"));
    refuse(request);
    requests_.clear();
    server_.resume();
    ASSERT_TRUE(counts(1));
    EXPECT_TRUE(loop_.run_until([this] { return !unsettled(); }));
}

TEST_P(Late, a_request_that_is_refused_after_its_late_reply_is_refunded_then)
{
    Request& request = asked_in_vain(3);
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

INSTANTIATE_TEST_SUITE_P(Algorithms, Late, testing::ValuesIn(rate_algorithms), by_name);

}  // namespace
}  // namespace ratelimit
