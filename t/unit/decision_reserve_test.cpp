// Decisions of requests that leave a reserve of their limit (Policy::reserve).

#include "decision_fixture.h"

namespace ratelimit {
namespace {

class Reserves : public DecisionTest {
protected:
    /// Decides a request that leaves this much.
    DecidedRequest& decide_leaving(
        KeyedZone& in, std::int64_t reserve, std::int64_t cost = 1, Decision::Rules rules = {})
    {
        in.zone.policy.reserve = reserve;
        return decide({ { in, cost } }, rules);
    }
    /// How many requests pass until one is refused.
    int passed_leaving(KeyedZone& in, std::int64_t reserve, Decision::Rules rules = {})
    {
        int count = 0;
        while (decide_leaving(in, reserve, 1, rules).granted()) {
            ++count;
        }
        return count;
    }
};

TEST_F(Reserves, of_which_a_refusal_is_remembered_refuse_no_request_that_leaves_less)
{
    KeyedZone& in = zone(10, Algorithm::gcra);
    in.zone.policy.burst = 9;
    in.zone.remembered = 1s;  // as nginx.conf's limits with a reserve set it
    const microseconds a_tenth = microseconds{ 24h } / 10;
    EXPECT_EQ(passed_leaving(in, 6), 4);
    const DecidedRequest& refused = decide_leaving(in, 6);
    EXPECT_EQ(refused.source(), Source::cache);
    EXPECT_EQ(refused.retry_after(), a_tenth) << "until six of ten are free, and one";
    EXPECT_EQ(decide_leaving(in, 6, 3).retry_after(), a_tenth * 3);
    EXPECT_EQ(decide_leaving(in, 6, 5).retry_after(), std::nullopt) << "never";
    EXPECT_EQ(decide_leaving(in, 7).source(), Source::redis)
        << "of another reserve nothing is known";
    EXPECT_EQ(passed_leaving(in, 3), 3);
    EXPECT_EQ(passed_leaving(in, 0), 3);
    EXPECT_EQ(decide_leaving(in, 6).retry_after(), a_tenth * 7);
    now += a_tenth * 7 - 1us;
    EXPECT_FALSE(decide_leaving(in, 6).granted());
    now += 1us;
    EXPECT_TRUE(decide_leaving(in, 6).granted());
}

TEST_F(Reserves, are_shared_by_the_nodes_if_the_fail_mode_is_local)
{
    const Decision::Rules rules{ FailMode::local };
    Coalescer& away = no_redis();
    for (const Algorithm algorithm : { Algorithm::fixed_window, Algorithm::gcra }) {
        KeyedZone& in = zone(100, &away, algorithm);
        in.zone.nodes = 3;
        if (algorithm == Algorithm::gcra) {
            in.zone.policy.burst = 99;
        }
        EXPECT_EQ(passed_leaving(in, 20, rules), 33 - 7) << "at least a third of twenty remains";
        EXPECT_EQ(passed_leaving(in, 0, rules), 7);
    }
}

}  // namespace
}  // namespace ratelimit
