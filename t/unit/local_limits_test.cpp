// Several limits of one request that are counted in this node's memory.

#include "slab_zone.h"
#include "zone/local_limits.h"

#include <array>

namespace ratelimit {
namespace {

constexpr std::chrono::hours a_day{ 24 };
constexpr microseconds begun = std::chrono::seconds{ 1'800'000'000 };

/// Three limits of one request, each with its zone.
class SeveralLimits : public testing::Test {
protected:
    /// Whether each limit grants.
    std::array<bool, 3> decide(bool take = true)
    {
        std::array<AppliedLimit, 3> limits;
        std::array<Zone, 3> zones;
        for (std::size_t i = 0; i < limits.size(); ++i) {
            zones[i].policy = policies_[i];
            zones[i].shared = &memories_[i].zone();
            limits[i].zone = &zones[i];
            limits[i].key = "key";
            limits[i].policy = policies_[i];
            limits[i].shadow = shadow_[i];
            limits[i].source = Source::local;
        }
        decide_local_limits(limits, { begun, begun, begun }, take);
        return { limits[0].state.granted, limits[1].state.granted, limits[2].state.granted };
    }
    std::array<std::int64_t, 3> remaining()
    {
        std::array<std::int64_t, 3> all;
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = memories_[i]
                         .memory()
                         .local_limiter()
                         .peek({ "key", policies_[i] }, begun)
                         .remaining;
        }
        return all;
    }

    using Remaining = std::array<std::int64_t, 3>;
    using Grants = std::array<bool, 3>;

    std::array<TestZone, 3> memories_;
    std::array<Policy, 3> policies_{ Policy{ Algorithm::fixed_window, { 9, a_day }, {}, {} },
                                     Policy{ Algorithm::sliding_window_log, { 2, a_day }, {}, {} },
                                     Policy{ Algorithm::token_bucket, { 9, a_day }, {}, {} } };
    std::array<bool, 3> shadow_{};
};

TEST_F(SeveralLimits, a_request_is_counted_in_all_or_in_none)
{
    EXPECT_EQ(decide(), (Grants{ true, true, true }));
    EXPECT_EQ(decide(), (Grants{ true, true, true }));
    EXPECT_EQ(remaining(), (Remaining{ 7, 0, 7 }));
    EXPECT_EQ(decide(), (Grants{ true, false, true }));
    EXPECT_EQ(remaining(), (Remaining{ 7, 0, 7 }));
}

TEST_F(SeveralLimits, a_shadow_limit_that_refuses_does_not_prevent_counting_in_others)
{
    shadow_[1] = true;
    for (int i = 0; i < 3; ++i) {
        decide();
    }
    EXPECT_EQ(decide(), (Grants{ true, false, true }));
    EXPECT_EQ(remaining(), (Remaining{ 5, 0, 5 }));
}

TEST_F(SeveralLimits, none_counts_if_another_limit_has_refused)
{
    EXPECT_EQ(decide(false), (Grants{ true, true, true }));
    EXPECT_EQ(remaining(), (Remaining{ 9, 2, 9 }));
    for (TestZone& zone : memories_) {
        EXPECT_EQ(zone.memory().keys(), 0U);
    }
}

TEST(LocalConcurrency, what_a_dead_worker_held_is_free_after_hold_whatever_the_clock_shows)
{
    constexpr std::chrono::seconds hold{ 8 };
    for (const auto step : { -3600, -7, -3, 0, 5, 3600 }) {
        TestZone memory;
        Zone zone;
        zone.policy = { Algorithm::concurrency, { 1, hold }, {}, {} };
        zone.shared = &memory.zone();
        const auto passes = [&](microseconds after, microseconds stepped) {
            AppliedLimit limit;
            limit.zone = &zone;
            limit.key = "key";
            limit.policy = zone.policy;
            limit.source = Source::local;
            const microseconds steady = std::chrono::hours{ 1 } + after;
            decide_local_limits({ &limit, 1 }, { steady, begun + after + stepped, steady }, true);
            return limit.state.granted;
        };
        const microseconds by = std::chrono::seconds{ step };
        EXPECT_TRUE(passes(microseconds{ 0 }, microseconds{ 0 }));
        EXPECT_FALSE(passes(hold - std::chrono::milliseconds{ 1 }, by)) << step;
        EXPECT_TRUE(passes(hold + hold / 8, by)) << step;
    }
}

TEST(LocalVariableRate, counts_each_window_length_separately)
{
    TestZone memory;
    Zone zone;
    zone.policy = { Algorithm::fixed_window, {}, {}, {} };
    zone.shared = &memory.zone();
    const auto granted = [&](microseconds window) {
        AppliedLimit limit;
        limit.zone = &zone;
        limit.key = "key";
        limit.policy = { Algorithm::fixed_window, { 1, window }, {}, {} };
        limit.source = Source::local;
        decide_local_limits({ &limit, 1 }, { begun, begun, begun }, true);
        return limit.state.granted;
    };
    EXPECT_TRUE(granted(a_day));
    EXPECT_TRUE(granted(2 * a_day));
    EXPECT_FALSE(granted(a_day));
}

}  // namespace
}  // namespace ratelimit
