// Limits that are counted in this node's memory, on nginx's slab memory. The decisions of each
// algorithm are tested in local_trace_test.cpp.

#include "local_limit.h"
#include "slab_zone.h"
#include "trace_maker.h"

#include <algorithm>
#include <map>

namespace ratelimit {
namespace {

using std::chrono::seconds;

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

TEST_P(EachAlgorithm, decides_each_of_many_keys_as_if_it_were_alone)
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

TEST_P(EachAlgorithm, drops_a_freed_key_at_once)
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

TEST_P(EachAlgorithm, a_peek_changes_nothing_though_the_clock_ran_back)
{
    TestZone zone;
    const Policy policy = policy_of(GetParam(), 5);
    const microseconds later = start + 3 * policy.rate.window;
    decide(zone, "key", policy, later);
    decide(zone, "key", policy, later + seconds{ 1 });
    const Verdict before = peek(zone, "key", policy, later + seconds{ 2 });

    peek(zone, "key", policy, start);

    EXPECT_EQ(text_of(peek(zone, "key", policy, later + seconds{ 2 })), text_of(before));
}

TEST_P(EachAlgorithm, settles_what_a_request_really_cost)
{
    TestZone zone;
    const Policy policy = policy_of(GetParam(), 10);
    LocalLimiter limiter = zone.memory().local_limiter();
    const Verdict state = decide(zone, "key", policy, start, 4);

    limiter.refund({ "key", policy, 1 }, start + seconds{ 1 }, { 4, start, state.reset });
    // An arrival time was rounded up to a microsecond.
    EXPECT_EQ(peek(zone, "key", policy, start + seconds{ 1 } + microseconds{ 1 }).remaining, 10);
    limiter.charge({ "key", policy, 12 }, start + seconds{ 1 });
    EXPECT_FALSE(decide(zone, "key", policy, start + seconds{ 2 }).granted);
    limiter.charge({ "another", policy, 3 }, start + seconds{ 1 });
    EXPECT_EQ(peek(zone, "another", policy, start + seconds{ 1 }).remaining, 7)
        << "a key without a state";
    limiter.refund({ "unknown", policy, 1 }, start, { 4, start, state.reset });
}

TEST_P(EachAlgorithm, removes_expired_keys_as_others_are_added)
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

TEST_P(EachAlgorithm, evicts_the_least_recently_used_keys_when_memory_is_full)
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
    EXPECT_EQ(peek(zone, "998", policy).remaining, policy.limit() - 1) << "a recent key is kept";
    EXPECT_EQ(peek(zone, "0", policy).remaining, policy.limit()) << "the first key is evicted";
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EachAlgorithm, testing::ValuesIn(rate_algorithms), by_name);

TEST(LocalLimiterTest, a_refund_takes_nothing_from_a_bucket_that_has_less)
{
    TestZone zone;
    const Policy policy = policy_of(Algorithm::sliding_window_buckets, 10);
    const Verdict state = decide(zone, "key", policy, start, 4);
    zone.memory().forget_key("key");
    decide(zone, "key", policy, start, 1);
    zone.memory().local_limiter().refund({ "key", policy, 1 }, start, { 4, start, state.reset });
    EXPECT_EQ(peek(zone, "key", policy, start).remaining, 9);
}

TEST(LocalLimiterTest, a_peek_counts_nothing_and_stores_nothing)
{
    TestZone zone;
    for (const Algorithm algorithm :
         { Algorithm::fixed_window, Algorithm::sliding_window_log, Algorithm::gcra }) {
        const Policy policy = policy_of(algorithm, 1);
        EXPECT_TRUE(peek(zone, "key", policy).granted);
        EXPECT_TRUE(decide(zone, "key", policy, start, 0).granted) << "a request of cost 0";
        EXPECT_FALSE(decide(zone, "key", policy, start, 2).granted);
        EXPECT_EQ(zone.memory().keys(), 0U);
    }
}

TEST(LocalLimiterTest, a_log_larger_than_the_zone_admits_no_more_than_its_limit)
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
