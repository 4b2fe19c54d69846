// Leases that are renewed by a check that belongs to no request, before they are used up.

#include "allocation_count.h"
#include "check/lease_renewals.h"
#include "decision_fixture.h"

namespace ratelimit {
namespace {

class Renewals : public DecisionTest {
protected:
    /// A zone whose key has had a hundred requests in this second, and has a lease.
    KeyedZone& busy(
        std::int64_t quota, std::int64_t tokens, Coalescer& by,
        Algorithm algorithm = Algorithm::sliding_window_log)
    {
        KeyedZone& in = zone(quota, &by, algorithm);
        renewals_ = std::make_unique<LeaseRenewals>(by.client());
        in.renewals = renewals_.get();
        in.zone.lease = 100;
        TokenLeases leases = in.memory.memory().leases();
        for (int i = 0; i < 100; ++i) {
            leases.spend(keyed(in), in.zone.policy, 100, now);
        }
        if (tokens > 0) {
            lease(in, tokens);
        }
        return in;
    }
    KeyedZone& busy(std::int64_t quota, std::int64_t tokens)
    {
        return busy(quota, tokens, redis());
    }
    /// Runs until the renewal in flight has ended.
    bool ended()
    {
        return loop_.run_until([this] { return renewals_->idle(); });
    }
    static bool pays(const DecidedRequest& request)
    {
        return !request.was_sent && request.source() == Source::lease;
    }

    std::unique_ptr<LeaseRenewals> renewals_;
};

TEST_F(Renewals, are_sent_when_half_is_used_and_no_request_waits_for_them)
{
    KeyedZone& in = busy(1000, 52);
    EXPECT_TRUE(pays(decide(in)));
    EXPECT_TRUE(renewals_->idle()) << "51 of 100 are left";
    EXPECT_TRUE(pays(decide(in)));
    EXPECT_FALSE(renewals_->idle());
    for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(pays(decide(in))) << "from what is left";
    }
    ASSERT_TRUE(ended());
    EXPECT_EQ(left_in_redis(in), 950) << "one renewal, of 50";
    EXPECT_EQ(leased(in), 90);
}

TEST_F(Renewals, get_what_the_limit_has_left)
{
    KeyedZone& in = busy(20, 10);
    EXPECT_TRUE(pays(decide(in)));
    ASSERT_TRUE(ended());
    EXPECT_EQ(left_in_redis(in), 0);
    EXPECT_EQ(leased(in), 9 + 20);
}

TEST_F(Renewals, that_are_refused_add_nothing_and_another_may_follow)
{
    KeyedZone& in = busy(20, 0);
    decide({ { in, 20 } });
    lease(in, 10);
    EXPECT_TRUE(pays(decide(in)));
    ASSERT_TRUE(ended());
    EXPECT_TRUE(pays(decide(in)));
    EXPECT_FALSE(renewals_->idle());
    ASSERT_TRUE(ended());
    EXPECT_EQ(leased(in), 8);
    EXPECT_FALSE(denied(in)) << "no request was refused";
}

TEST_F(Renewals, are_not_sent_for_a_request_that_is_refused)
{
    KeyedZone& in = busy(1000, 10);
    KeyedZone& refuses = zone(1);
    deny(refuses, 10s);
    EXPECT_EQ(decide({ { in }, { refuses } }).result(), Result::rejected);
    EXPECT_TRUE(renewals_->idle());
    EXPECT_EQ(leased(in), 10);
}

TEST_F(Renewals, of_requests_that_cost_more_are_for_as_many_requests)
{
    KeyedZone& in = busy(1000, 0);
    lease(in, 40);
    EXPECT_TRUE(pays(decide({ { in, 4 } }))) << "nine more are left";
    ASSERT_TRUE(ended());
    EXPECT_EQ(left_in_redis(in), 1000 - 4 * 91);
    EXPECT_EQ(leased(in), 4 * 100);
}

TEST_F(Renewals, that_fail_leave_the_lease_and_the_next_request_waits)
{
    Coalescer& away = redis_at(free_port(), 100ms);
    KeyedZone& in = busy(1000, 2, away);
    EXPECT_TRUE(pays(decide(in, closes)));
    EXPECT_TRUE(pays(decide(in, closes)));
    ASSERT_TRUE(ended());
    const DecidedRequest& next = decide(in, closes);
    EXPECT_EQ(next.result(), Result::failed_closed);
    EXPECT_EQ(away.client().take_failed(), 0U);
}

TEST_F(Renewals, whose_replies_are_late_are_used_and_none_is_sent_meanwhile)
{
    RedisServer slow;
    Coalescer& by = redis_at(slow.port(), 100ms);
    // Whose tokens live for long enough.
    KeyedZone& in = busy(1000, 2, by, Algorithm::fixed_window);
    EXPECT_TRUE(pays(decide(in)));
    ASSERT_TRUE(ended()) << "Redis has the script";
    leased(in);
    lease(in, 2);
    slow.pause();
    EXPECT_TRUE(pays(decide(in)));
    loop_.run_for(300ms);
    EXPECT_FALSE(renewals_->idle()) << "its reply is still awaited";
    EXPECT_TRUE(pays(decide(in)));
    slow.resume();
    ASSERT_TRUE(ended());
    EXPECT_GE(leased(in), 90);
}

TEST_F(Renewals, allocate_nothing_in_the_steady_state)
{
    KeyedZone& in = busy(1'000'000, 10);
    std::size_t fewest = 1000;
    for (int round = 0; round < 30; ++round) {
        lease(in, 10);
        DecidedRequest& request = prepare({ { in } });
        const std::size_t before = allocation_count();
        request.was_sent = request.decision.start();
        const bool sent = !renewals_->idle();
        const bool done = ended();
        fewest = std::min(fewest, allocation_count() - before);
        EXPECT_TRUE(sent);
        EXPECT_TRUE(done);
        leased(in);
    }
    EXPECT_EQ(fewest, 0U);
}

}  // namespace
}  // namespace ratelimit
