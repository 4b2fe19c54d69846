// Limits that are counted in this node's memory, on nginx's own slab memory. How each algorithm
// decides is in local_trace_test.cpp.

#include "local_limit.h"
#include "slab_zone.h"
#include "trace_maker.h"

#include <algorithm>
#include <map>

namespace ratelimit {
namespace {

using std::chrono::seconds;

constexpr Model::Time start_of_traces = 1'800'000'000 * second;
constexpr microseconds start{ start_of_traces };

Policy policy_of(Algorithm algorithm, std::int64_t quota)
{
    Policy policy{ algorithm, { quota, std::chrono::hours{ 24 } }, {}, {} };
    if (keeps_arrival_time(algorithm) && algorithm != Algorithm::token_bucket) {
        policy.burst = quota - 1;
    }
    return policy;
}

Verdict decide(
    TestZone& zone, std::string_view key, const Policy& policy, microseconds now = start,
    std::int64_t cost = 1)
{
    return zone.decide({ key, policy, cost }, now);
}

Verdict peek(
    TestZone& zone, std::string_view key, const Policy& policy, microseconds now = start,
    std::int64_t cost = 1)
{
    return zone.memory().local_limiter().peek({ key, policy, cost }, now);
}

class EachAlgorithm : public testing::TestWithParam<Algorithm>, protected TraceMaker {};

TEST_P(EachAlgorithm, decides_for_many_keys_as_for_each_of_them_alone)
{
    for (int trace = 0; trace < 20; ++trace) {
        TestZone zone(std::size_t{ 1 } << 20U);
        const Policy policy = any_policy(GetParam());
        std::map<std::string, LocalLimit> alone;
        Time now = start_of_traces + any(0, day);
        for (int step = 0; step < 300; ++step) {
            const std::string key(static_cast<std::size_t>(any(1, 6)) * 20, 'k');
            const std::int64_t cost = any_cost(policy);
            const bool take = any(0, 5) > 0;
            const Verdict before = peek(zone, key, policy, microseconds{ now }, cost);
            const Verdict state = zone.decide({ key, policy, cost }, microseconds{ now }, take);
            auto expected = alone[key].check(policy, now, cost);
            ASSERT_EQ(before.granted, granted(expected)) << "trace " << trace << ", " << step;
            ASSERT_EQ(text_of(state), text_of(commit(expected, take)))
                << "trace " << trace << ", step " << step;
            now = any(0, 2) == 0 ? now : std::max(now, any_later(policy, now, state));
        }
        EXPECT_EQ(zone.memory().evictions(), 0U);
    }
}

TEST_P(EachAlgorithm, forgets_a_key_at_once_when_it_is_freed)
{
    TestZone zone;
    const Policy policy = policy_of(GetParam(), 1);
    EXPECT_TRUE(decide(zone, "key", policy).granted);
    EXPECT_TRUE(decide(zone, "other", policy).granted);
    EXPECT_FALSE(decide(zone, "key", policy).granted);
    EXPECT_EQ(zone.memory().keys(), 2U);
    zone.memory().forget_key("key");
    EXPECT_EQ(zone.memory().keys(), 1U);
    EXPECT_TRUE(decide(zone, "key", policy).granted);
    EXPECT_FALSE(decide(zone, "other", policy).granted);
}

TEST_P(EachAlgorithm, removes_keys_whose_time_is_over_as_others_come)
{
    TestZone zone;
    const Policy policy = policy_of(GetParam(), 5);
    for (int i = 0; i < 40; ++i) {
        decide(zone, "old " + std::to_string(i), policy);
    }
    EXPECT_EQ(zone.memory().keys(), 40U);
    for (int i = 0; i < 40; ++i) {
        decide(zone, "new " + std::to_string(i), policy, start + std::chrono::hours{ 48 });
    }
    EXPECT_EQ(zone.memory().keys(), 40U);
    EXPECT_EQ(zone.memory().evictions(), 0U);
}

TEST_P(EachAlgorithm, evicts_the_keys_that_were_used_least_recently_when_memory_is_full)
{
    TestZone zone;
    const Policy policy = policy_of(GetParam(), 100'000);
    const std::string long_key(120, 'x');
    constexpr int count = 1000;
    for (int i = 0; i < count; ++i) {
        ASSERT_TRUE(decide(zone, (i % 2 == 0 ? "" : long_key) + std::to_string(i), policy).granted);
        ASSERT_EQ(decide(zone, "hot", policy).remaining, policy.limit() - 1 - i);
    }
    EXPECT_GT(zone.memory().evictions(), 500U);
    EXPECT_EQ(zone.memory().evictions() + zone.memory().keys(), count + 1U);
    EXPECT_EQ(peek(zone, "998", policy).remaining, policy.limit() - 1) << "a late one";
    EXPECT_EQ(peek(zone, "0", policy).remaining, policy.limit()) << "the first one";
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, EachAlgorithm,
    testing::Values(
        Algorithm::fixed_window, Algorithm::sliding_window_counter, Algorithm::sliding_window_log,
        Algorithm::sliding_window_buckets, Algorithm::token_bucket, Algorithm::leaky_bucket,
        Algorithm::gcra),
    [](const auto& test) { return std::string(name_of(test.param)); });

TEST(LocalLimiterTest, a_look_counts_nothing_and_remembers_nothing)
{
    TestZone zone;
    for (const Algorithm algorithm :
         { Algorithm::fixed_window, Algorithm::sliding_window_log, Algorithm::gcra }) {
        const Policy policy = policy_of(algorithm, 1);
        EXPECT_TRUE(peek(zone, "key", policy).granted);
        EXPECT_TRUE(decide(zone, "key", policy, start, 0).granted) << "a request of no cost";
        EXPECT_FALSE(decide(zone, "key", policy, start, 2).granted);
        EXPECT_EQ(zone.memory().keys(), 0U);
    }
}

TEST(LocalLimiterTest, a_log_larger_than_the_zone_lets_no_more_in_than_its_limit)
{
    TestZone zone;
    const Policy policy = policy_of(Algorithm::sliding_window_log, 5000);
    int granted = 0;
    for (int i = 0; i < 5010; ++i) {
        granted += decide(zone, "key", policy, start + microseconds{ i }).granted ? 1 : 0;
    }
    EXPECT_EQ(granted, 5000);
    EXPECT_TRUE(decide(zone, "other", policy).granted) << "another key finds room";
}

TEST(LocalLimiterTest, a_log_that_grows_evicts_other_keys_and_not_itself)
{
    TestZone zone;
    const Policy policy = policy_of(Algorithm::sliding_window_log, 300);
    for (int i = 0; i < 500; ++i) {
        decide(zone, "cold " + std::to_string(i), policy);
    }
    for (int i = 0; i < 300; ++i) {
        ASSERT_EQ(decide(zone, "hot", policy, start + microseconds{ i }).remaining, 299 - i);
    }
    EXPECT_FALSE(decide(zone, "hot", policy, start + seconds{ 1 }).granted);
}

TEST(LocalLimiterTest, the_memory_that_a_key_may_need_is_enough_for_its_log)
{
    const Policy policy = policy_of(Algorithm::sliding_window_log, 200);
    TestZone zone(std::size_t{ 64 } * 1024);
    const std::string key(128, 'k');
    const auto before = zone.free_pages();
    for (int i = 0; i < 200; ++i) {
        decide(zone, key, policy, start + microseconds{ i });
    }
    const std::size_t used = (before - zone.free_pages()) * ngx_pagesize;
    EXPECT_LE(used, LocalLimiter::largest_key(policy) + ngx_pagesize);
    EXPECT_GE(used + ngx_pagesize, LocalLimiter::largest_key(policy));
}

}  // namespace
}  // namespace ratelimit
