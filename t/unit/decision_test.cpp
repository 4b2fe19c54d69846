// The decision of one limit: what decides it, and what is remembered of it.

#include "allocation_count.h"
#include "decision_fixture.h"

namespace ratelimit {
namespace {

class OneLimit : public DecisionTest {};

TEST_F(OneLimit, is_decided_by_redis_if_this_node_knows_nothing_of_its_key)
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

TEST_F(OneLimit, is_decided_by_a_remembered_refusal_before_redis)
{
    KeyedZone& in = zone(2);
    deny(in, 30s);
    const DecidedRequest& request = decide(in);
    EXPECT_FALSE(request.was_sent);
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_EQ(request.source(), Source::cache);
    EXPECT_EQ(request.retry_after(), 30s);
    now += 31s;
    EXPECT_EQ(decide(in).source(), Source::redis) << "its time is over";
}

TEST_F(OneLimit, is_decided_by_a_lease_before_a_remembered_refusal)
{
    KeyedZone& in = zone(2);
    deny(in, 30s);
    lease(in, 1);
    const DecidedRequest& request = decide(in);
    EXPECT_FALSE(request.was_sent);
    EXPECT_EQ(request.result(), Result::passed);
    EXPECT_EQ(request.source(), Source::lease);
    EXPECT_EQ(decide(in).source(), Source::cache) << "the lease is spent";
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

TEST_F(OneLimit, that_redis_cannot_decide_is_left_out_if_the_fail_mode_is_open)
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
    EXPECT_EQ(decide({ { in, 1, true } }, closes).result(), Result::failed_open) << "a shadow";
}

TEST_F(OneLimit, that_redis_cannot_decide_is_this_nodes_part_if_the_fail_mode_is_local)
{
    KeyedZone& in = zone(4, &no_redis());
    in.zone.nodes = 2;
    const DecidedRequest& first = decide(in, local);
    EXPECT_EQ(first.result(), Result::passed);
    EXPECT_EQ(first.source(), Source::local);
    EXPECT_EQ(first.decision.speaking().policy.limit(), 2);
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

TEST_F(OneLimit, of_a_leaky_bucket_delays_what_exceeds_its_rate)
{
    KeyedZone& in = zone(24, Algorithm::leaky_bucket);  // one an hour
    in.zone.policy.burst = 2;
    EXPECT_EQ(decide(in).result(), Result::passed);
    const DecidedRequest& delayed = decide(in);
    EXPECT_EQ(delayed.result(), Result::delayed);
    EXPECT_EQ(delayed.decision.outcome().wait, 1h);
    EXPECT_EQ(decide(in, dry_run).result(), Result::delayed_dry_run);
}

TEST_F(OneLimit, whose_rate_is_malformed_is_for_the_fail_mode)
{
    KeyedZone& in = zone(1);
    const std::vector<Applied> malformed{ { in, 1, false, 0, true } };
    EXPECT_EQ(decide(malformed, opens).result(), Result::failed_open);
    EXPECT_EQ(decide(malformed, closes).result(), Result::failed_closed);
    EXPECT_EQ(decide(malformed, dry_run).result(), Result::failed_open);
    EXPECT_EQ(decide(malformed, local).result(), Result::failed_open) << "no node knows its rate";
}

class RememberedRefusal : public DecisionTest {};

TEST_F(RememberedRefusal, counts_down_from_when_the_check_was_made)
{
    for (const Clock by : { Clock::local, Clock::redis }) {
        KeyedZone& in = zone(1, Algorithm::gcra);
        in.zone.clock = by;
        decide(in);
        const auto first = decide(in).retry_after();
        ASSERT_TRUE(first.has_value());
        now += 20s;
        const DecidedRequest& request = decide(in);
        EXPECT_EQ(request.source(), Source::cache);
        EXPECT_EQ(request.retry_after(), *first - 20s);
        now += 41s;
        EXPECT_EQ(decide(in).source(), Source::redis) << "at most a minute";
    }
}

TEST_F(RememberedRefusal, lasts_no_longer_than_the_zone_allows)
{
    KeyedZone& in = zone(1);
    in.zone.remembered = 1s;
    decide(in);
    decide(in);
    EXPECT_TRUE(denied(in));
    now += 1s;
    EXPECT_FALSE(denied(in));
}

TEST_F(RememberedRefusal, is_none_where_the_cache_is_off)
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
    EXPECT_EQ(decide(in).source(), Source::redis) << "one from before a reload";
}

TEST_F(RememberedRefusal, is_for_requests_of_the_same_cost_or_more)
{
    KeyedZone& in = zone(24, Algorithm::gcra);  // one an hour
    in.zone.policy.burst = 9;
    deny(in, 30s, 2);
    EXPECT_EQ(decide({ { in, 2 } }).retry_after(), 30s);
    const DecidedRequest& larger = decide({ { in, 5 } });
    EXPECT_EQ(larger.source(), Source::cache);
    EXPECT_EQ(larger.retry_after(), 3h + 30s);
    EXPECT_EQ(decide({ { in, 11 } }).retry_after(), std::nullopt) << "more than the limit holds";
    EXPECT_EQ(decide({ { in, 0 } }).source(), Source::redis) << "a look";
    EXPECT_EQ(decide({ { in, 1 } }).source(), Source::redis);
}

TEST_F(RememberedRefusal, is_forgotten_when_a_request_passes_where_requests_differ)
{
    KeyedZone& in = zone(9);
    deny(in, 30s, 2);
    decide(in);
    EXPECT_EQ(decide({ { in, 2 } }).source(), Source::cache) << "all requests are alike";
    in.zone.remembered = 1s;
    decide({ { in, 0 } });
    EXPECT_EQ(decide({ { in, 2 } }).source(), Source::cache) << "a look passed";
    decide(in);
    EXPECT_EQ(decide({ { in, 2 } }).source(), Source::redis);
}

class Leases : public DecisionTest {};

TEST_F(Leases, are_taken_for_a_busy_key)
{
    KeyedZone& in = zone(100);
    in.zone.lease = 2;
    EXPECT_EQ(decide(in).source(), Source::redis);
    EXPECT_EQ(decide(in).source(), Source::redis) << "leases one, as there was one before";
    const DecidedRequest& leased = decide(in);
    EXPECT_FALSE(leased.was_sent);
    EXPECT_EQ(leased.source(), Source::lease);
    EXPECT_EQ(leased.remaining(), 97);
    decide(in);
    EXPECT_EQ(left_in_redis(in), 94) << "of four requests and a lease of two";
}

TEST_F(Leases, are_neither_taken_nor_spent_where_they_are_off)
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

TEST_F(Leases, are_not_for_a_look)
{
    KeyedZone& in = zone(100);
    lease(in, 5);
    EXPECT_EQ(decide({ { in, 0 } }).source(), Source::redis);
    EXPECT_EQ(leased(in), 5);
}

TEST_F(Leases, pay_what_a_request_costs)
{
    KeyedZone& in = zone(100);
    lease(in, 5);
    EXPECT_EQ(decide({ { in, 6 } }).source(), Source::redis) << "more than there is";
    EXPECT_EQ(decide({ { in, 3 } }).source(), Source::lease);
    EXPECT_EQ(leased(in), 2);
}

TEST_F(Leases, pay_for_requests_behind_those_that_waited_for_the_call_that_took_them)
{
    KeyedZone& in = zone(100);
    in.zone.lease = 5;
    decide(in);
    const DecidedRequest& first = start({ { in } });
    const DecidedRequest& waiting = start({ { in } });
    ASSERT_TRUE(loop_.run_until([&] { return first.calls + waiting.calls == 2; }));
    EXPECT_EQ(first.source(), Source::redis);
    EXPECT_EQ(waiting.source(), Source::redis) << "they go together as the next call";
    EXPECT_EQ(left_in_redis(in), 96);
    EXPECT_EQ(decide(in).source(), Source::lease);
    EXPECT_EQ(left_in_redis(in), 96);
}

TEST_F(Leases, pay_for_a_request_that_redis_refuses_since_the_call_before_it_leased_the_rest)
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
    /// How often the decision allocates from the heap.
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

TEST_F(DecisionMemory, is_not_of_the_heap)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& refused = zone(9);
    KeyedZone& in_redis = zone(9);
    KeyedZone& in_memory = local_zone(9);
    decide({ { in_redis }, { in_memory } });  // what is allocated once is there
    lease(leased_one, 5);
    EXPECT_EQ(allocations({ { leased_one }, { in_redis }, { in_memory } }), 0U);
    deny(refused, 30s);
    EXPECT_EQ(allocations({ { leased_one }, { refused }, { in_memory } }), 0U);
    EXPECT_EQ(left_in_redis(in_redis), 7);
}

}  // namespace
}  // namespace ratelimit
