// Concurrent checks of the same keys share a call, and each gets the verdict that it would get in a
// call of its own.

#include "coalescer_fixture.h"

#include <algorithm>
#include <numeric>

namespace ratelimit {
namespace {

using End = ShardPart::End;

constexpr microseconds some_time{ std::chrono::seconds{ 1'800'000'000 } };

class CoalescedChecks : public CoalescerTest {
protected:
    void SetUp() override { begin(server_); }

    /// Sends requests while Redis is paused, and waits for all; returns the number of calls.
    long calls_of(const std::function<void()>& sending)
    {
        const long before = server_.calls("evalsha");
        server_.pause();
        sending();
        server_.resume();
        EXPECT_TRUE(run());
        return server_.calls("evalsha") - before;
    }
    long calls_of(int times, const std::vector<Asked>& limits)
    {
        return calls_of([&] {
            for (int i = 0; i < times; ++i) {
                send(limits);
            }
        });
    }

    std::vector<std::vector<Verdict>> verdicts() const
    {
        std::vector<std::vector<Verdict>> states;
        for (const auto& request : requests_) {
            EXPECT_TRUE(request->answered());
            states.push_back(request->states());
        }
        return states;
    }

    /// Sends requests of these limits with each of the costs: concurrently, and then one after
    /// another on other keys. Their verdicts must be equal.
    void expect_same_verdicts(
        std::vector<Asked> limits, const std::vector<std::vector<std::int64_t>>& costs)
    {
        const auto with_costs = [&](const std::string& suffix, std::size_t request) {
            auto changed = limits;
            for (std::size_t i = 0; i < changed.size(); ++i) {
                changed[i].key += suffix;
                changed[i].cost = costs[request][i];
                changed[i].now = some_time;
            }
            return changed;
        };
        requests_.clear();
        calls_of([&] {
            for (std::size_t i = 0; i < costs.size(); ++i) {
                send(with_costs("together", i));
            }
        });
        const auto together = verdicts();
        requests_.clear();
        for (std::size_t i = 0; i < costs.size(); ++i) {
            send(with_costs("apart", i));
            ASSERT_TRUE(run());
        }
        const auto apart = verdicts();
        for (std::size_t i = 0; i < costs.size() && !HasFailure(); ++i) {
            EXPECT_EQ(together[i], apart[i]) << "request " << i;
        }
    }

    RedisServer server_;
};

TEST_F(CoalescedChecks, of_one_key_share_a_call_while_another_is_in_flight)
{
    EXPECT_EQ(calls_of(50, { Asked{} }), 2);
    std::vector<std::int64_t> expected(50);
    std::iota(expected.rbegin(), expected.rend(), 50);
    EXPECT_EQ(remaining(), expected);
}

TEST_F(CoalescedChecks, pass_in_the_order_of_arrival)
{
    Asked limit;
    limit.policy.rate.quota = 10;
    EXPECT_EQ(calls_of(50, { limit }), 2);
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        EXPECT_EQ(requests_[i]->state().granted, i < 10) << "request " << i;
    }
}

TEST_F(CoalescedChecks, of_other_keys_do_not_wait)
{
    calls_of([this] {
        for (int i = 0; i < 200; ++i) {
            Asked limit;
            limit.key = "key" + std::to_string(i);
            send(limit);
            send(limit);
        }
    });
    EXPECT_EQ(server_.key_reads(), 400) << "each key's second request after its first";
    EXPECT_EQ(count(End::answered), 400);
}

TEST_F(CoalescedChecks, are_sent_at_once_if_none_is_in_flight)
{
    Request& first = send();
    ASSERT_TRUE(run());
    const long before = server_.calls("evalsha");
    first.then = nullptr;
    Request& second = send();
    second.then = [this] { send(); };  // nothing is in flight then
    ASSERT_TRUE(run());
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 99, 98, 97 }));
    EXPECT_EQ(server_.calls("evalsha") - before, 2);
}

TEST_F(CoalescedChecks, with_different_policies_or_clocks_do_not_share_a_call)
{
    std::vector<std::vector<Asked>> kinds(6, { Asked{} });
    kinds[1][0].policy.rate.quota = 99;
    kinds[2][0].policy.rate.window *= 2;
    kinds[3][0].policy.algorithm = Algorithm::sliding_window_counter;
    kinds[4][0].now = some_time;
    kinds[5][0].shadow = true;
    calls_of([&] {
        for (const auto& kind : kinds) {
            send(kind);
        }
        send({ Asked{}, Asked{ "another" } });  // with another limit
        send({ Asked{ "another" }, Asked{} });  // in another order
    });
    const long writes = server_.calls("set") + server_.calls("setrange");
    EXPECT_EQ(writes, 6 + 2 * 2) << "each limit is counted once";
    EXPECT_EQ(count(End::answered), 8);
}

TEST_F(CoalescedChecks, of_keys_with_equal_concatenations_do_not_share_a_call)
{
    EXPECT_EQ(
        calls_of([this] {
            send({ Asked{ "ab" }, Asked{ "c" } });
            send({ Asked{ "a" }, Asked{ "bc" } });
            send({ Asked{ "abc" } });
        }),
        3);
}

TEST_F(CoalescedChecks, get_the_verdicts_of_single_calls_from_every_algorithm)
{
    for (const Algorithm algorithm : all_algorithms) {
        SCOPED_TRACE(name_of(algorithm));
        Asked limit;
        limit.key = name_of(algorithm);
        limit.policy = { algorithm, { 7, 60s }, {}, {} };
        if (keeps_arrival_time(algorithm)) {
            limit.policy.burst = 12;
        }
        std::vector<std::vector<std::int64_t>> costs(20, { 1 });
        for (const std::int64_t cost : { 0, 3, 0, 100, 1, 2, 2, 2, 2, 2, 1, 1, 0, 0, 100, 100 }) {
            costs.push_back({ cost });
            costs.insert(costs.begin() + cost % 5, { cost });
        }
        expect_same_verdicts({ limit }, costs);
    }
}

TEST_F(CoalescedChecks, of_several_limits_are_counted_in_all_or_in_none)
{
    Asked wide{ "wide", { Algorithm::gcra, { 10, 60s }, 40, {} } };
    Asked tight{ "tight", { Algorithm::sliding_window_log, { 12, 60s }, {}, {} } };
    Asked shadow{ "shadow", { Algorithm::token_bucket, { 5, 60s }, {}, {} }, 1, true };
    std::vector<std::vector<std::int64_t>> costs(30, { 1, 1, 1 });
    costs.insert(costs.begin() + 4, 3, { 2, 0, 1 });
    costs.insert(costs.begin() + 9, 2, { 50, 1, 0 });
    expect_same_verdicts({ wide, tight, shadow }, costs);
}

TEST_F(CoalescedChecks, with_changing_costs_are_sent_in_calls_of_a_hundred)
{
    const long calls = calls_of([this] {
        for (int i = 0; i < 251; ++i) {
            Asked limit;
            limit.policy.rate.quota = 1000;
            limit.cost = 1 + i % 2;
            send(limit);
        }
    });
    EXPECT_EQ(calls, 4);  // the first, and 250 in hundreds
    std::int64_t left = 1000;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
        left -= 1 + static_cast<std::int64_t>(i % 2);
        ASSERT_EQ(requests_[i]->remaining(), left) << "request " << i;
    }
}

TEST_F(CoalescedChecks, of_one_call_are_decided_at_the_newest_time_of_this_nodes_clock)
{
    calls_of([this] {
        for (int i = 0; i < 5; ++i) {
            Asked limit;
            limit.now = some_time + i * 1s;
            send(limit);
        }
    });
    for (std::size_t i = 1; i < requests_.size(); ++i) {
        EXPECT_EQ(requests_[i]->limits[0]->now, some_time + 4s) << "the time of the last one";
    }
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 99, 98, 97, 96, 95 }));
}

TEST_F(CoalescedChecks, of_destroyed_requests_do_not_affect_the_others)
{
    calls_of([this] {
        for (int i = 0; i < 10; ++i) {
            send();
        }
        requests_.pop_front();  // its call is in flight, so it is counted
        requests_.erase(requests_.begin() + 4);
        requests_.pop_back();
    });
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 98, 97, 96, 95, 94, 93, 92 }));
}

TEST_F(CoalescedChecks, of_requests_that_are_all_destroyed_do_not_block_the_key)
{
    for (int i = 0; i < 3; ++i) {
        calls_of([this] {
            send();
            send();
            requests_.clear();
        });
        requests_.clear();
    }
    EXPECT_EQ(calls_of(2, { Asked{} }), 2);
    EXPECT_EQ(count(End::answered), 2);
}

TEST_F(CoalescedChecks, may_destroy_other_requests_when_they_end)
{
    calls_of([this] {
        Request& first = send();
        for (int i = 0; i < 8; ++i) {
            send();
        }
        first.then = [this] { requests_.erase(requests_.begin() + 1, requests_.begin() + 3); };
        requests_[4]->then = [this] { requests_.erase(requests_.begin() + 3); };
        requests_[3]->then = [this] { requests_.pop_back(); };
    });
    EXPECT_EQ(count(End::pending), 0);
    EXPECT_EQ(count(End::failed), 0);
}

TEST_F(CoalescedChecks, are_sent_again_when_redis_has_lost_its_scripts)
{
    server_.ask({ "SCRIPT", "FLUSH" });
    calls_of([this] {
        for (int i = 0; i < 10; ++i) {
            send();
        }
        // The retried call is written without the request that it was made for.
        requests_.pop_front();
    });
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 98, 97, 96, 95, 94, 93, 92, 91, 90 }));
    server_.ask({ "SCRIPT", "FLUSH" });
    calls_of([this] {
        send();
        requests_.clear();
    });
    send();
    ASSERT_TRUE(run());
    EXPECT_EQ(requests_.back()->remaining(), 88);
}

TEST_F(CoalescedChecks, may_lease_tokens)
{
    Request& request = make({ Asked{} });
    request.lease_wanted = 9;
    coalescer_->send(request);
    ASSERT_TRUE(run());
    EXPECT_EQ(request.remaining(), 99);
    ASSERT_EQ(request.lease.replies.size(), 1U);
    EXPECT_EQ(request.lease.granted(), 10);
    EXPECT_EQ(request.lease.replies[0].remaining, 90);
    EXPECT_EQ(request.lease.spent, 1);
}

TEST_F(CoalescedChecks, lease_no_more_tokens_than_the_limit_has)
{
    Asked limit;
    limit.policy.rate.quota = 4;
    Request& request = make({ limit });
    request.lease_wanted = 9;
    coalescer_->send(request);
    ASSERT_TRUE(run());
    EXPECT_EQ(request.remaining(), 3);
    EXPECT_EQ(request.lease.granted(), 4);
    EXPECT_EQ(request.lease.replies.at(0).remaining, 0);
}

TEST_F(CoalescedChecks, that_share_a_call_take_one_lease)
{
    EXPECT_EQ(
        calls_of([&] {
            for (int i = 0; i < 5; ++i) {
                Request& request = make({ Asked{} });
                request.lease_wanted = 10;
                coalescer_->send(request);
            }
        }),
        2);
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 99, 88, 87, 86, 85 }));
    EXPECT_EQ(requests_.front()->lease.granted(), 11);
    for (std::size_t i = 1; i < requests_.size(); ++i) {
        EXPECT_TRUE(requests_[i]->lease.replies.empty()) << "request " << i;
    }
}

TEST_F(CoalescedChecks, drop_the_lease_of_a_destroyed_request)
{
    calls_of([this] {
        Request& request = make({ Asked{} });
        request.lease_wanted = 3;
        coalescer_->send(request);
        send();
        requests_.pop_front();
    });
    EXPECT_EQ(remaining(), (std::vector<std::int64_t>{ 95 }));
    EXPECT_TRUE(requests_[0]->lease.replies.empty());
}

}  // namespace
}  // namespace ratelimit
