// What a request really cost is known after its response, and settled then.

#include "decision_fixture.h"

namespace ratelimit {
namespace {

class SettledCost : public DecisionTest {
protected:
    /// A request of this cost, whose cost may be settled later.
    DecidedRequest& charged(KeyedZone& in, std::int64_t cost)
    {
        DecidedRequest& request = prepare({ { in, cost } });
        request.limits[0].settled_later = true;
        request.was_sent = request.decision.start();
        finish(request);
        return request;
    }
    static void settle(const DecidedRequest& request, std::int64_t cost)
    {
        request.decision.settle(request.limits[0], cost);
    }
    bool remains(KeyedZone& in, std::int64_t expected)
    {
        return loop_.run_until([&] { return left_in_redis(in) == expected; });
    }
};

TEST_F(SettledCost, a_refund_takes_only_what_has_not_drained_by_the_clock_of_the_node)
{
    KeyedZone& in = zone(10, Algorithm::token_bucket);
    in.zone.policy.burst = 10;
    const DecidedRequest& first = charged(in, 4);
    now += 24h;  // all of it has drained
    charged(in, 3);
    settle(first, 0);
    KeyedZone& other = zone(10);  // the refund is executed before this one's
    settle(charged(other, 2), 0);
    EXPECT_TRUE(remains(other, 10));
    EXPECT_EQ(left_in_redis(in), 7);
}

TEST_F(SettledCost, a_refund_ends_what_the_node_remembers_of_the_key)
{
    KeyedZone& in = zone(9);
    const DecidedRequest& request = charged(in, 9);
    EXPECT_FALSE(decide(in).granted());
    EXPECT_TRUE(denied(in));
    settle(request, 2);
    EXPECT_FALSE(denied(in));
    EXPECT_TRUE(remains(in, 7));
}

TEST_F(SettledCost, a_log_is_charged_at_most_its_quota)
{
    KeyedZone& in = zone(10, Algorithm::sliding_window_log);
    settle(charged(in, 1), 100'000);
    EXPECT_TRUE(remains(in, 0));
    EXPECT_LE(std::stol(server->ask({ "STRLEN", in.redis_key })), 24 + 7 * 11);
}

/// Also what a reserve leaves for others.
TEST_F(SettledCost, a_charge_passes_a_reserve_with_each_algorithm)
{
    for (const Algorithm algorithm : rate_algorithms) {
        for (const std::int64_t reserve : { 900, 1000 }) {
            KeyedZone& in = zone(1000, algorithm);
            if (keeps_arrival_time(algorithm)) {
                in.zone.policy.burst = 999;
            }
            in.zone.policy.reserve = reserve;
            const DecidedRequest& request = charged(in, 0);
            settle(request, 700);
            in.zone.policy.reserve = 0;
            EXPECT_TRUE(remains(in, in.zone.policy.whole() - 700))
                << name_of(algorithm) << " " << reserve;
        }
    }
}

}  // namespace
}  // namespace ratelimit
