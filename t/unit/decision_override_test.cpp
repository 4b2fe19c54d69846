// Decisions of limits whose keys an override blocks, and records of other windows.

#include "all_algorithms.h"
#include "decision_fixture.h"

namespace ratelimit {
namespace {

Applied blocks(KeyedZone& in, bool shadow = false, std::int64_t cost = 1)
{
    return { in, cost, shadow, 0, false, 100s };
}

class OverrideDecision : public DecisionTest {};

TEST_F(OverrideDecision, a_block_refuses_without_redis_and_is_counted_nowhere)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& blocked_zone = zone(9, place);
        KeyedZone& other = zone(9, place);
        const DecidedRequest& refused = decide({ blocks(blocked_zone), { other } });
        EXPECT_EQ(refused.result(), Result::rejected);
        EXPECT_FALSE(refused.was_sent);
        EXPECT_EQ(refused.source(), Source::overridden);
        EXPECT_EQ(refused.limits[0].state, blocked(1, 100s));
        EXPECT_EQ(refused.decision.outcome().retry_after, 100s);
        EXPECT_FALSE(refused.limits[0].in_redis() && denied(blocked_zone))
            << "it is not remembered";
        EXPECT_EQ(decide({ { blocked_zone }, { other } }).remaining(1), 8);
        EXPECT_EQ(decide(blocked_zone).remaining(), 7);
    }
}

TEST_F(OverrideDecision, a_block_in_a_shadow_limit_does_not_refuse)
{
    KeyedZone& shadowed = zone(9);
    KeyedZone& other = zone(9);
    const DecidedRequest& passed = decide({ blocks(shadowed, true), { other } });
    EXPECT_EQ(passed.result(), Result::passed);
    EXPECT_FALSE(passed.granted(0));
    EXPECT_EQ(passed.remaining(1), 8);
}

TEST_F(OverrideDecision, a_cost_of_0_reads_a_block_and_passes)
{
    KeyedZone& in = zone(9);
    const DecidedRequest& peeked = decide({ blocks(in, false, 0) });
    EXPECT_EQ(peeked.result(), Result::passed);
    EXPECT_EQ(peeked.limits[0].state, blocked(0, 100s));
}

TEST_F(OverrideDecision, a_dry_run_reports_a_block)
{
    KeyedZone& in = zone(9);
    EXPECT_EQ(decide({ blocks(in) }, { FailMode::open, true }).result(), Result::rejected_dry_run);
}

TEST_F(OverrideDecision, a_leased_token_of_another_limit_is_returned)
{
    KeyedZone& in = zone(9);
    KeyedZone& leasing = zone(1000);
    leasing.zone.lease = 100;
    lease(leasing, 5);
    EXPECT_EQ(decide({ blocks(in), { leasing } }).result(), Result::rejected);
    EXPECT_EQ(leased(leasing), 5);
}

TEST(ZoneRecord, another_window_than_the_zones_or_another_rate_has_a_record_of_its_own)
{
    Zone fixed;
    for (const Algorithm algorithm : all_algorithms) {
        fixed.policy = { algorithm, { 5, std::chrono::minutes{ 1 } }, {}, {} };
        Policy other = fixed.policy;
        other.rate.quota = 7;
        const std::uint32_t more = fixed.record_of(other);
        EXPECT_EQ(more != 0, keeps_arrival_time(algorithm)) << name_of(algorithm);
        other.rate.window = std::chrono::hours{ 1 };
        const std::uint32_t hour = fixed.record_of(other);
        EXPECT_NE(hour, more) << name_of(algorithm);
        EXPECT_LT(hour, 1U << 30U) << name_of(algorithm);
        EXPECT_TRUE(keeps_arrival_time(algorithm) || hour == 3600U) << name_of(algorithm);
        EXPECT_EQ(fixed.record_of(fixed.policy), 0U) << name_of(algorithm);
    }
}

}  // namespace
}  // namespace ratelimit
