// The decision of one limit: its source, and the refusals and leases that it leaves.

#include "allocation_count.h"
#include "decision_fixture.h"

namespace ratelimit {
namespace {

class OneLimit : public DecisionTest {};

TEST_F(OneLimit, is_decided_by_redis_without_a_cached_refusal_or_lease)
{
    KeyedZone& in = zone(2);
    EXPECT_EQ(decide(in).remaining(), 1);
    const DecidedRequest& passed = decide(in);
    EXPECT_TRUE(passed.was_sent);
    EXPECT_EQ(passed.result(), Result::passed);
    EXPECT_EQ(passed.source(), Source::redis);
    EXPECT_EQ(passed.remaining(), 0);
    const DecidedRequest& refused = decide(in);
    EXPECT_EQ(refused.result(), Result::rejected);
    EXPECT_EQ(refused.source(), Source::redis);
}

TEST_F(OneLimit, is_decided_by_a_cached_refusal_before_redis)
{
    KeyedZone& in = zone(2);
    deny(in, 30s);
    const DecidedRequest& request = decide(in);
    EXPECT_FALSE(request.was_sent);
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_EQ(request.source(), Source::cache);
    EXPECT_EQ(request.retry_after(), 30s);
    now += 31s;
    EXPECT_EQ(decide(in).source(), Source::redis) << "the refusal has expired";
}

TEST_F(OneLimit, is_decided_by_a_lease_before_a_cached_refusal)
{
    KeyedZone& in = zone(2);
    deny(in, 30s);
    lease(in, 1);
    const DecidedRequest& request = decide(in);
    EXPECT_FALSE(request.was_sent);
    EXPECT_EQ(request.result(), Result::passed);
    EXPECT_EQ(request.source(), Source::lease);
    EXPECT_EQ(decide(in).source(), Source::cache) << "the lease is used up";
}

TEST_F(OneLimit, without_redis_is_decided_in_memory)
{
    KeyedZone& in = local_zone(1);
    const DecidedRequest& passed = decide(in, closes);
    EXPECT_FALSE(passed.was_sent);
    EXPECT_EQ(passed.result(), Result::passed);
    EXPECT_EQ(passed.source(), Source::local);
    EXPECT_EQ(decide(in, closes).result(), Result::rejected);
}

TEST_F(OneLimit, that_redis_cannot_decide_passes_if_the_fail_mode_is_open)
{
    KeyedZone& in = zone(1, &no_redis());
    const DecidedRequest& request = decide(in, opens);
    EXPECT_EQ(request.result(), Result::failed_open);
    EXPECT_TRUE(request.decision.undecided(request.limits[0]));
    EXPECT_FALSE(request.decision.has_outcome());
    EXPECT_EQ(left_in_memory(in), 1) << "it is counted nowhere";
}

TEST_F(OneLimit, that_redis_cannot_decide_refuses_if_the_fail_mode_is_closed)
{
    KeyedZone& in = zone(1, &no_redis());
    EXPECT_EQ(decide(in, closes).result(), Result::failed_closed);
    EXPECT_EQ(decide(in, dry_run).result(), Result::failed_open) << "a dry run refuses nothing";
    EXPECT_EQ(decide({ { in, 1, true } }, closes).result(), Result::failed_open)
        << "a shadow limit refuses nothing";
}

TEST_F(OneLimit, that_redis_cannot_decide_is_the_nodes_share_if_the_fail_mode_is_local)
{
    KeyedZone& in = zone(4, &no_redis());
    in.zone.nodes = 2;
    const DecidedRequest& first = decide(in, local);
    EXPECT_EQ(first.result(), Result::passed);
    EXPECT_EQ(first.source(), Source::local);
    EXPECT_EQ(first.decision.shown().policy.limit(), 2);
    EXPECT_EQ(decide(in, local).result(), Result::passed);
    EXPECT_EQ(decide(in, local).result(), Result::rejected);
}

TEST_F(OneLimit, refuses_nothing_in_a_dry_run)
{
    KeyedZone& in = zone(1);
    EXPECT_EQ(decide(in, dry_run).result(), Result::passed);
    const DecidedRequest& request = decide(in, dry_run);
    EXPECT_EQ(request.result(), Result::rejected_dry_run);
    EXPECT_TRUE(request.decision.outcome().refused);
}

TEST_F(OneLimit, that_is_a_shadow_refuses_nothing)
{
    KeyedZone& in = zone(1);
    decide(in);
    const DecidedRequest& request = decide({ { in, 1, true } });
    EXPECT_FALSE(request.granted());
    EXPECT_EQ(request.result(), Result::passed);
}

TEST_F(OneLimit, of_a_leaky_bucket_delays_excess_requests)
{
    KeyedZone& in = zone(24, Algorithm::leaky_bucket);  // one an hour
    in.zone.policy.burst = 2;
    EXPECT_EQ(decide(in).result(), Result::passed);
    const DecidedRequest& delayed = decide(in);
    EXPECT_EQ(delayed.result(), Result::delayed);
    EXPECT_EQ(delayed.decision.outcome().wait, 1h);
    EXPECT_EQ(decide(in, dry_run).result(), Result::delayed_dry_run);
}

TEST_F(OneLimit, with_a_malformed_rate_is_decided_by_the_fail_mode)
{
    KeyedZone& in = zone(1);
    const std::vector<Applied> malformed{ { in, 1, false, 0, true } };
    EXPECT_EQ(decide(malformed, opens).result(), Result::failed_open);
    EXPECT_EQ(decide(malformed, closes).result(), Result::failed_closed);
    EXPECT_EQ(decide(malformed, dry_run).result(), Result::failed_open);
    EXPECT_EQ(decide(malformed, local).result(), Result::failed_open) << "no node can decide it";
}

class CachedRefusal : public DecisionTest {};

TEST_F(CachedRefusal, counts_down_from_the_time_of_its_check)
{
    for (const Clock by : { Clock::local, Clock::redis }) {
        KeyedZone& in = zone(1, Algorithm::gcra);
        in.zone.clock = by;
        decide(in);
        const auto first = decide(in).retry_after();
        ASSERT_TRUE(first.has_value());
        now += 4s;
        const DecidedRequest& request = decide(in);
        EXPECT_EQ(request.source(), Source::cache);
        EXPECT_EQ(request.retry_after(), *first - 4s);
        now += 2s;
        EXPECT_EQ(decide(in).source(), Source::redis) << "cached for five seconds at most";
    }
}

TEST_F(CachedRefusal, lasts_no_longer_than_the_zone_allows)
{
    KeyedZone& in = zone(1);
    in.zone.remembered = 1s;
    decide(in);
    decide(in);
    EXPECT_TRUE(denied(in));
    now += 1s;
    EXPECT_FALSE(denied(in));
}

TEST_F(CachedRefusal, is_not_added_if_another_worker_heard_of_a_refund_since_the_check_was_sent)
{
    KeyedZone& in = zone(1);
    decide(in);
    DecidedRequest& request = start({ { in } });
    in.zone.refunded(in.key);
    finish(request);
    EXPECT_FALSE(request.granted());
    EXPECT_FALSE(denied(in));
    decide(in);
    EXPECT_TRUE(denied(in)) << "by a check that was sent after it";
}

TEST_F(CachedRefusal, is_neither_added_nor_used_if_the_cache_is_off)
{
    KeyedZone& in = zone(1);
    decide(in);
    in.zone.cache = false;
    EXPECT_FALSE(decide(in).granted());
    EXPECT_FALSE(denied(in));
    in.zone.cache = true;
    decide(in);
    EXPECT_TRUE(denied(in));
    in.zone.cache = false;
    EXPECT_EQ(decide(in).source(), Source::redis) << "although one is left from before a reload";
}

TEST_F(CachedRefusal, refuses_requests_of_the_same_cost_or_more)
{
    KeyedZone& in = zone(24, Algorithm::gcra);  // one an hour
    in.zone.policy.burst = 9;
    deny(in, 30s, 2);
    EXPECT_EQ(decide({ { in, 2 } }).retry_after(), 30s);
    const DecidedRequest& larger = decide({ { in, 5 } });
    EXPECT_EQ(larger.source(), Source::cache);
    EXPECT_EQ(larger.retry_after(), 3h + 30s);
    EXPECT_EQ(decide({ { in, 11 } }).retry_after(), std::nullopt) << "more than the limit holds";
    EXPECT_EQ(decide({ { in, 0 } }).source(), Source::redis) << "a peek";
    EXPECT_EQ(decide({ { in, 1 } }).source(), Source::redis);
}

TEST_F(CachedRefusal, is_dropped_when_a_request_passes_if_costs_or_policies_differ)
{
    KeyedZone& in = zone(9);
    deny(in, 30s, 2);
    decide(in);
    EXPECT_EQ(decide({ { in, 2 } }).source(), Source::cache)
        << "all requests have the same cost and policy";
    in.zone.remembered = 1s;
    decide({ { in, 0 } });
    EXPECT_EQ(decide({ { in, 2 } }).source(), Source::cache) << "only a peek passed";
    decide(in);
    EXPECT_EQ(decide({ { in, 2 } }).source(), Source::redis);
}

class Leases : public DecisionTest {};

TEST_F(Leases, are_taken_for_a_busy_key)
{
    KeyedZone& in = zone(100);
    in.zone.lease = 2;
    EXPECT_EQ(decide(in).source(), Source::redis);
    EXPECT_EQ(decide(in).source(), Source::redis) << "which leases one, as one request came before";
    const DecidedRequest& leased = decide(in);
    EXPECT_FALSE(leased.was_sent);
    EXPECT_EQ(leased.source(), Source::lease);
    EXPECT_EQ(leased.remaining(), 97);
    decide(in);
    EXPECT_EQ(left_in_redis(in), 94) << "four requests and two leased ones";
}

TEST_F(Leases, are_neither_taken_nor_used_if_they_are_off)
{
    KeyedZone& in = zone(100);
    lease(in, 5);
    in.zone.lease = 0;
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(decide(in).source(), Source::redis);
    }
    EXPECT_EQ(left_in_redis(in), 96);
    EXPECT_EQ(leased(in), 5);
}

TEST_F(Leases, are_not_used_by_a_peek)
{
    KeyedZone& in = zone(100);
    lease(in, 5);
    EXPECT_EQ(decide({ { in, 0 } }).source(), Source::redis);
    EXPECT_EQ(leased(in), 5);
}

TEST_F(Leases, pay_the_cost_of_a_request)
{
    KeyedZone& in = zone(100);
    lease(in, 5);
    EXPECT_EQ(decide({ { in, 6 } }).source(), Source::redis) << "more than is leased";
    EXPECT_EQ(decide({ { in, 3 } }).source(), Source::lease);
    EXPECT_EQ(leased(in), 2);
}

TEST_F(Leases, pay_for_requests_after_those_that_were_pending_when_they_were_taken)
{
    KeyedZone& in = zone(100);
    in.zone.lease = 5;
    decide(in);
    const DecidedRequest& first = start({ { in } });
    const DecidedRequest& waiting = start({ { in } });
    ASSERT_TRUE(loop_.run_until([&] { return first.calls + waiting.calls == 2; }));
    EXPECT_EQ(first.source(), Source::redis);
    EXPECT_EQ(waiting.source(), Source::redis) << "both share the next call";
    EXPECT_EQ(left_in_redis(in), 96);
    EXPECT_EQ(decide(in).source(), Source::lease);
    EXPECT_EQ(left_in_redis(in), 96);
}

TEST_F(Leases, pay_for_a_request_that_redis_refuses_because_the_last_call_leased_the_rest)
{
    KeyedZone& in = zone(3);
    in.zone.lease = 5;
    decide(in);
    const DecidedRequest& first = start({ { in } });
    const DecidedRequest& waiting = start({ { in } });
    ASSERT_TRUE(loop_.run_until([&] { return first.calls + waiting.calls == 2; }));
    EXPECT_TRUE(waiting.granted());
    EXPECT_EQ(waiting.source(), Source::lease);
    EXPECT_FALSE(decide(in).granted()) << "all three are counted";
}

TEST_F(Leases, do_not_pay_for_a_request_whose_cost_is_settled_later)
{
    KeyedZone& in = zone(100);
    lease(in, 5);
    DecidedRequest& charged = prepare({ { in } });
    charged.limits[0].settled_later = true;
    charged.was_sent = charged.decision.start();
    finish(charged);
    EXPECT_EQ(charged.source(), Source::redis) << "a token that expired could not be refunded";
    EXPECT_EQ(leased(in), 5);
}

TEST_F(Leases, expire_by_the_clock_of_the_zone)
{
    for (const Clock by : { Clock::local, Clock::redis }) {
        KeyedZone& in = zone(100);
        in.zone.clock = by;
        in.zone.lease = 5;
        decide(in);
        decide(in);
        ASSERT_EQ(decide(in).source(), Source::lease);
        decide(in);
        now += 24h;
        EXPECT_EQ(decide(in).source(), Source::redis);
    }
}

class DecisionMemory : public DecisionTest {
protected:
    /// The number of heap allocations of the decision.
    std::size_t allocations(const std::vector<Applied>& limits, Decision::Rules rules = {})
    {
        DecidedRequest request(limits, rules, clock);
        const auto is_made = std::function<bool()>([&] { return request.calls > 0; });
        const std::size_t before = allocation_count();
        if (request.decision.start()) {
            EXPECT_TRUE(loop_.run_until(is_made));
        }
        return allocation_count() - before;
    }
};

TEST_F(DecisionMemory, is_not_allocated_from_the_heap)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& refused = zone(9);
    KeyedZone& in_redis = zone(9);
    KeyedZone& in_memory = local_zone(9);
    decide({ { in_redis }, { in_memory } });  // makes the one-time allocations
    lease(leased_one, 5);
    EXPECT_EQ(allocations({ { leased_one }, { in_redis }, { in_memory } }), 0U);
    deny(refused, 30s);
    EXPECT_EQ(allocations({ { leased_one }, { refused }, { in_memory } }), 0U);
    EXPECT_EQ(left_in_redis(in_redis), 7);
}

}  // namespace
}  // namespace ratelimit
