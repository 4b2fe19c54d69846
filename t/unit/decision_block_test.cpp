// Decisions of limits whose keys are blocked after a refusal (Policy::block).

#include "all_algorithms.h"
#include "decision_fixture.h"

namespace ratelimit {
namespace {

class Blocks : public DecisionTest {
protected:
    /// Registers the scripts before a client is made.
    void SetUp() override
    {
        DecisionTest::SetUp();
        for (const Algorithm algorithm : all_algorithms) {
            for (const microseconds block : { 100s, 10s }) {
                const SequenceLimit limit{ algorithm, false, block };
                scripts_.add(sequence_script({ &limit, 1 }, true));
            }
        }
    }

    /// A zone of `quota` requests a day, whose refusals begin a block of 100 seconds.
    KeyedZone& blocking_zone(
        std::int64_t quota, Coalescer* in, Algorithm algorithm = Algorithm::fixed_window)
    {
        KeyedZone& made = zone(quota, in, algorithm);
        made.zone.policy.block = 100s;
        const SequenceLimit limit{ algorithm, false, made.zone.policy.block };
        made.sequences.emplace(std::span{ &limit, 1 }, true, scripts_);
        return made;
    }
    KeyedZone& blocking_zone(std::int64_t quota) { return blocking_zone(quota, &redis()); }
};

TEST_F(Blocks, are_remembered_for_every_cost)
{
    for (const Algorithm algorithm : { Algorithm::fixed_window, Algorithm::gcra }) {
        KeyedZone& in = blocking_zone(1, &redis(), algorithm);
        EXPECT_TRUE(decide(in).granted());
        const DecidedRequest& first = decide({ { in, 5 } });
        EXPECT_EQ(first.source(), Source::redis);
        EXPECT_EQ(first.limits[0].state, begun_block(100s));
        now += 3s;
        for (const std::int64_t cost : { 1, 5, 9 }) {
            const DecidedRequest& next = decide({ { in, cost } });
            EXPECT_EQ(next.source(), Source::cache) << cost;
            EXPECT_EQ(next.limits[0].state, blocked(cost, 97s)) << cost;
        }
        const DecidedRequest& peek = decide({ { in, 0 } });
        EXPECT_EQ(peek.source(), Source::redis);
        EXPECT_EQ(peek.limits[0].state, blocked(0, 97s));
        now += 62s;
        EXPECT_EQ(decide(in).source(), Source::redis) << "after five seconds at most";
        EXPECT_EQ(decide(in).limits[0].state, blocked(1, 35s));
        now += 35s;
        EXPECT_TRUE(decide(in).granted());
    }
}

TEST_F(Blocks, begin_only_for_keys_whose_own_limit_refuses)
{
    Coalescer& other = redis_at(server->port());
    for (Coalescer* place : { &redis(), &other, static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& wide = blocking_zone(9);
        KeyedZone& narrow = blocking_zone(1, place);
        EXPECT_EQ(decide({ { wide }, { narrow } }).result(), Result::passed);
        const DecidedRequest& refused = decide({ { wide }, { narrow } });
        EXPECT_EQ(refused.result(), Result::rejected);
        EXPECT_EQ(refused.limits[0].state.block, Block::none);
        EXPECT_EQ(refused.limits[1].state.block, Block::begins);
        EXPECT_EQ(refused.decision.outcome().retry_after, 100s);
        const DecidedRequest& free = decide(wide);
        EXPECT_TRUE(free.granted());
        // A refund in Redis may arrive after the next check.
        EXPECT_GE(free.remaining(), 6);
    }
}

TEST_F(Blocks, are_kept_by_the_fail_mode_local)
{
    KeyedZone& in = blocking_zone(2, &no_redis(), Algorithm::sliding_window_log);
    EXPECT_TRUE(decide(in, local).granted() && decide(in, local).granted());
    EXPECT_EQ(decide(in, local).limits[0].state, begun_block(100s));
    now += 60s;
    EXPECT_EQ(decide(in, local).limits[0].state, blocked(1, 40s));
    now += 40s;
    EXPECT_EQ(decide(in, local).remaining(), 1);
}

TEST_F(Blocks, begin_in_a_dry_run_and_by_shadow_limits)
{
    KeyedZone& dry = blocking_zone(1);
    EXPECT_TRUE(decide(dry, dry_run).granted());
    EXPECT_EQ(decide(dry, dry_run).result(), Result::rejected_dry_run);
    EXPECT_EQ(decide(dry).result(), Result::rejected);
    KeyedZone& shadow = blocking_zone(1);
    EXPECT_TRUE(decide({ { shadow, 1, true } }).granted());
    EXPECT_EQ(decide({ { shadow, 1, true } }).result(), Result::passed);
    EXPECT_EQ(decide(shadow).limits[0].state.block, Block::lasts);
}

TEST_F(Blocks, of_another_length_are_not_recalled)
{
    KeyedZone& in = blocking_zone(1);
    decide(in);
    EXPECT_EQ(decide(in).limits[0].state.block, Block::begins);
    in.zone.policy.block = 10s;
    const SequenceLimit limit{ Algorithm::fixed_window, false, in.zone.policy.block };
    in.sequences.emplace(std::span{ &limit, 1 }, true, scripts_);
    const DecidedRequest& request = decide(in);
    EXPECT_EQ(request.source(), Source::redis);
    EXPECT_EQ(request.limits[0].state, blocked(1, 10s));
}

}  // namespace
}  // namespace ratelimit
