// The decision of a request with several limits: it is counted in all of them or in none.

#include "allocation_count.h"
#include "decision_fixture.h"

namespace ratelimit {
namespace {

class RequestOfSeveralLimits : public DecisionTest {
protected:
    void refund_arrives(KeyedZone& in, std::int64_t left)
    {
        EXPECT_TRUE(loop_.run_until([&] { return left_in_redis(in) == left; }))
            << left_in_redis(in);
    }
};

TEST_F(RequestOfSeveralLimits, is_counted_in_none_if_one_refuses)
{
    KeyedZone& wide = zone(9);
    KeyedZone& narrow = zone(1);
    decide({ { wide }, { narrow } });
    const DecidedRequest& request = decide({ { wide }, { narrow } });
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_TRUE(request.granted(0));
    EXPECT_FALSE(request.granted(1));
    EXPECT_EQ(&request.decision.decided_by(), &request.limits[1]);
    EXPECT_EQ(left_in_redis(wide), 8);
}

TEST_F(RequestOfSeveralLimits, is_counted_if_only_a_shadow_refuses)
{
    KeyedZone& wide = zone(9);
    KeyedZone& narrow = zone(1);
    decide({ { wide }, { narrow, 1, true } });
    const DecidedRequest& request = decide({ { wide }, { narrow, 1, true } });
    EXPECT_EQ(request.result(), Result::passed);
    EXPECT_FALSE(request.granted(1));
    EXPECT_EQ(left_in_redis(wide), 7);
}

TEST_F(RequestOfSeveralLimits, is_sent_to_redis_only_for_limits_without_a_lease)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& other = zone(9);
    lease(leased_one, 2);
    const DecidedRequest& request = decide({ { leased_one }, { other } });
    EXPECT_EQ(request.source(0), Source::lease);
    EXPECT_EQ(request.source(1), Source::redis);
    EXPECT_EQ(request.decision.checks_sent(), 1U);
    EXPECT_EQ(request.result(), Result::passed);
    EXPECT_EQ(left_in_redis(leased_one), 9);
    EXPECT_EQ(leased(leased_one), 1);
}

TEST_F(RequestOfSeveralLimits, sends_no_check_if_a_refusal_is_cached)
{
    KeyedZone& refused = zone(9);
    KeyedZone& in_redis = zone(9);
    KeyedZone& in_memory = local_zone(9);
    deny(refused, 30s);
    const DecidedRequest& request = decide({ { in_redis }, { refused }, { in_memory } }, local);
    EXPECT_FALSE(request.was_sent);
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_FALSE(request.limits[0].decided) << "and not decided in this node's memory";
    EXPECT_FALSE(request.decision.undecided(request.limits[0])) << "it did not fail";
    EXPECT_EQ(request.source(2), Source::local);
    EXPECT_EQ(left_in_redis(in_redis), 9);
    EXPECT_EQ(left_in_memory(in_memory), 9);
}

TEST_F(RequestOfSeveralLimits, is_sent_for_the_other_limits_if_a_shadows_refusal_is_cached)
{
    KeyedZone& shadow = zone(9);
    KeyedZone& other = zone(9);
    deny(shadow, 30s);
    const DecidedRequest& request = decide({ { shadow, 1, true }, { other } });
    EXPECT_EQ(request.source(0), Source::cache);
    EXPECT_EQ(request.source(1), Source::redis);
    EXPECT_EQ(request.result(), Result::passed);
    EXPECT_EQ(left_in_redis(other), 8);
}

TEST_F(RequestOfSeveralLimits, returns_its_leased_token_if_a_cached_refusal_refuses)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& refused = zone(9);
    lease(leased_one, 2);
    deny(refused, 30s);
    const DecidedRequest& request = decide({ { leased_one }, { refused } });
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_EQ(request.remaining(0), 7) << "five in Redis, and two leased";
    EXPECT_EQ(leased(leased_one), 2);
}

TEST_F(RequestOfSeveralLimits, returns_its_leased_tokens_if_redis_refuses)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& refusing = zone(1);
    lease(leased_one, 4);
    decide(refusing);
    EXPECT_EQ(decide({ { leased_one, 3 }, { refusing } }).result(), Result::rejected);
    EXPECT_EQ(leased(leased_one), 4);
}

TEST_F(RequestOfSeveralLimits, is_not_paid_for_by_a_token_that_was_leased_while_it_waited)
{
    KeyedZone& full = zone(1);
    KeyedZone& other = zone(9);
    full.zone.cache = false;
    decide(full);
    DecidedRequest& request = start({ { full }, { other } });
    lease(full, 1);
    finish(request);
    EXPECT_EQ(request.result(), Result::rejected) << "Redis did not count it in the other limit";
    EXPECT_EQ(left_in_redis(other), 9);
    EXPECT_EQ(leased(full), 1);
}

TEST_F(
    RequestOfSeveralLimits,
    that_is_refused_shows_the_limit_with_the_smallest_share_left_after_refunds)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& refusing = zone(10);
    lease(leased_one, 8);
    decide({ { refusing, 3 } });
    const DecidedRequest& request = decide({ { leased_one, 8 }, { refusing, 8 } });
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_EQ(request.remaining(0), 9);
    EXPECT_EQ(&request.decision.shown(), &request.limits[1]) << "seven of ten are left";
}

TEST_F(RequestOfSeveralLimits, returns_its_leased_token_if_the_fail_mode_refuses)
{
    KeyedZone& leased_one = zone(9);
    lease(leased_one, 2);
    KeyedZone& away = zone(9, &no_redis());
    EXPECT_EQ(decide({ { leased_one }, { away } }, closes).result(), Result::failed_closed);
    EXPECT_EQ(leased(leased_one), 2);
    lease(leased_one, 2);
    EXPECT_EQ(decide({ { leased_one }, { away } }, opens).result(), Result::failed_open);
    EXPECT_EQ(leased(leased_one), 1) << "the request passed";
}

TEST_F(RequestOfSeveralLimits, returns_its_leased_token_if_there_is_no_memory_for_the_check)
{
    KeyedZone& leased_one = zone(9);
    lease(leased_one, 2);
    std::vector<Applied> limits{ { leased_one } };
    for (int i = 0; i < 1000; ++i) {  // more servers than the free list of any test before has
        limits.push_back({ zone(9, &no_redis()) });
    }
    DecidedRequest request(limits, closes, clock);
    fail_allocations(true);
    const bool sent = request.decision.start();
    fail_allocations(false);
    EXPECT_FALSE(sent);
    EXPECT_EQ(request.result(), Result::failed_closed);
    EXPECT_EQ(leased(leased_one), 2);
}

TEST_F(RequestOfSeveralLimits, returns_its_leased_token_if_it_is_refused_in_a_dry_run)
{
    KeyedZone& leased_one = zone(9);
    KeyedZone& refusing = zone(1);
    lease(leased_one, 2);
    decide(refusing);
    EXPECT_EQ(decide({ { leased_one }, { refusing } }, dry_run).result(), Result::rejected_dry_run);
    EXPECT_EQ(leased(leased_one), 2) << "as if the limits were enforced";
}

TEST_F(RequestOfSeveralLimits, leases_only_if_every_limit_of_the_call_has_leases)
{
    KeyedZone& one = zone(100);
    KeyedZone& other = zone(100);
    one.zone.lease = 5;
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(decide({ { one }, { other } }).source(), Source::redis);
        EXPECT_EQ(decide({ { other }, { one } }).source(), Source::redis);
    }
    EXPECT_EQ(left_in_redis(one), 92);
    other.zone.lease = 5;
    decide({ { one }, { other } });
    decide({ { one }, { other } });
    const DecidedRequest& leased_both = decide({ { one }, { other } });
    EXPECT_FALSE(leased_both.was_sent);
    EXPECT_EQ(leased_both.source(0), Source::lease);
    EXPECT_EQ(leased_both.source(1), Source::lease);
}

TEST_F(RequestOfSeveralLimits, on_two_servers_is_refunded_if_one_refuses)
{
    RedisServer second;
    KeyedZone& wide = zone(9);
    KeyedZone& narrow = zone(1, &redis_at(second.port()));
    wide.zone.remembered = 1s;
    decide(narrow);
    deny(wide, 30s, 9);
    const DecidedRequest& request = decide({ { wide, 2 }, { narrow } });
    EXPECT_EQ(request.result(), Result::rejected);
    EXPECT_EQ(request.remaining(0), 9) << "the refund is included";
    refund_arrives(wide, 9);
    EXPECT_NE(decide({ { wide, 9 } }).source(), Source::cache)
        << "the refund invalidates the cached refusal";
}

TEST_F(RequestOfSeveralLimits, on_two_servers_is_counted_on_both_if_it_passes)
{
    RedisServer second;
    KeyedZone& one = zone(9);
    KeyedZone& other = zone(9, &redis_at(second.port()));
    EXPECT_EQ(decide({ { one }, { other } }).result(), Result::passed);
    EXPECT_EQ(left_in_redis(one), 8);
    EXPECT_EQ(left_in_redis(other), 8);
}

TEST_F(RequestOfSeveralLimits, is_refunded_if_the_fail_mode_refuses_for_an_unavailable_server)
{
    KeyedZone& there = zone(9);
    KeyedZone& away = zone(9, &no_redis());
    EXPECT_EQ(decide({ { there }, { away } }, closes).result(), Result::failed_closed);
    refund_arrives(there, 9);
    EXPECT_EQ(decide({ { there }, { away } }, opens).result(), Result::failed_open);
    EXPECT_EQ(left_in_redis(there), 8);
}

TEST_F(RequestOfSeveralLimits, is_refunded_if_this_nodes_memory_refuses_for_an_unavailable_server)
{
    KeyedZone& there = zone(9);
    KeyedZone& away = zone(1, &no_redis());
    EXPECT_EQ(decide({ { there }, { away } }, local).result(), Result::passed);
    EXPECT_EQ(left_in_redis(there), 8);
    const DecidedRequest& refused = decide({ { there }, { away } }, local);
    EXPECT_EQ(refused.result(), Result::rejected);
    EXPECT_EQ(refused.remaining(0), 8);
    refund_arrives(there, 8);
}

TEST_F(RequestOfSeveralLimits, is_not_counted_in_memory_if_redis_refuses)
{
    KeyedZone& refusing = zone(1);
    KeyedZone& in_memory = local_zone(9);
    decide(refusing);
    EXPECT_EQ(decide({ { refusing }, { in_memory } }).result(), Result::rejected);
    EXPECT_EQ(left_in_memory(in_memory), 9);
    EXPECT_EQ(decide({ { refusing, 1, true }, { in_memory } }).result(), Result::passed);
    EXPECT_EQ(left_in_memory(in_memory), 8) << "a shadow's refusal does not matter";
}

TEST_F(RequestOfSeveralLimits, is_counted_in_memory_by_each_of_two_processes_at_one_time)
{
    constexpr int requests = 50'000;
    KeyedZone& first = local_zone(9 * requests);
    KeyedZone& second = local_zone(9 * requests);
    const auto decide_all = [&](KeyedZone& one, KeyedZone& other) {
        for (int i = 0; i < requests; ++i) {
            DecidedRequest({ { one }, { other } }, opens, clock).decision.start();
        }
    };
    const pid_t worker = start_worker([&] { decide_all(second, first); });
    decide_all(first, second);
    EXPECT_EQ(status_of(worker), 0) << "in another order they do not wait for each other for ever";
    EXPECT_EQ(left_in_memory(first), 7 * requests);
    EXPECT_EQ(left_in_memory(second), 7 * requests);
}

TEST_F(RequestOfSeveralLimits, is_counted_nowhere_if_a_malformed_limit_refuses_it)
{
    KeyedZone& malformed = zone(9);
    KeyedZone& in_redis = zone(9);
    KeyedZone& leased_one = zone(9);
    KeyedZone& in_memory = local_zone(9);
    lease(leased_one, 2);
    const std::vector<Applied> limits{
        { malformed, 1, false, 0, true }, { in_redis }, { leased_one }, { in_memory }
    };
    const DecidedRequest& refused = decide(limits, closes);
    EXPECT_FALSE(refused.was_sent);
    EXPECT_EQ(refused.result(), Result::failed_closed);
    EXPECT_EQ(left_in_redis(in_redis), 9);
    EXPECT_EQ(left_in_memory(in_memory), 9);
    EXPECT_EQ(leased(leased_one), 2);
}

TEST_F(RequestOfSeveralLimits, is_decided_by_the_other_limits_if_the_fail_mode_skips_one)
{
    KeyedZone& malformed = zone(9);
    KeyedZone& narrow = zone(1);
    KeyedZone& in_memory = local_zone(9);
    const std::vector<Applied> limits{ { malformed, 1, false, 0, true },
                                       { narrow },
                                       { in_memory } };
    const DecidedRequest& passed = decide(limits, opens);
    EXPECT_EQ(passed.result(), Result::failed_open);
    EXPECT_TRUE(passed.decision.has_outcome());
    EXPECT_TRUE(passed.decision.undecided(passed.limits[0]));
    EXPECT_EQ(&passed.decision.shown(), &passed.limits[1]);
    EXPECT_EQ(decide(limits, opens).result(), Result::rejected);
    EXPECT_EQ(left_in_memory(in_memory), 8);
}

TEST_F(RequestOfSeveralLimits, passes_if_only_a_shadow_could_not_be_decided)
{
    KeyedZone& shadow = zone(9, &no_redis());
    KeyedZone& other = zone(9);
    const DecidedRequest& request = decide({ { shadow, 1, true }, { other } }, closes);
    EXPECT_EQ(request.result(), Result::passed);
    EXPECT_FALSE(request.limits[0].decided);
    EXPECT_FALSE(request.decision.undecided(request.limits[0]));
}

TEST_F(RequestOfSeveralLimits, keeps_its_limits_in_their_order)
{
    RedisServer second;
    Coalescer& there = redis_at(second.port());
    KeyedZone& a = zone(5, &there);
    KeyedZone& b = zone(6);
    KeyedZone& c = zone(7, &there);
    KeyedZone& d = zone(8);
    const DecidedRequest& request = decide({ { a }, { b }, { c }, { d } });
    EXPECT_EQ(request.remaining(0), 4);
    EXPECT_EQ(request.remaining(1), 5);
    EXPECT_EQ(request.remaining(2), 6);
    EXPECT_EQ(request.remaining(3), 7);
}

}  // namespace
}  // namespace ratelimit
