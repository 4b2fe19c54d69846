// Quotas and windows whose product exceeds Lua's exact integers: the scripts may be off by one
// microsecond or request, and no more; and variable rates that change the whole policy at once.

#include "check/script_text.h"
#include "model.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <random>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class Large : public testing::TestWithParam<Algorithm> {
protected:
    std::int64_t any(std::int64_t from, std::int64_t to)
    {
        return std::uniform_int_distribution<std::int64_t>(from, to)(random_);
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    std::minstd_rand random_{ 7 };
};

void expect_near(const Verdict& actual, const Verdict& expected)
{
    EXPECT_NEAR(
        static_cast<double>(actual.remaining), static_cast<double>(expected.remaining), 1.0);
    EXPECT_NEAR(
        static_cast<double>(actual.reset.count()), static_cast<double>(expected.reset.count()),
        1.0);
    ASSERT_EQ(actual.retry_after.has_value(), expected.retry_after.has_value());
    if (actual.retry_after) {
        EXPECT_NEAR(
            static_cast<double>(actual.retry_after->count()),
            static_cast<double>(expected.retry_after->count()), 1.0);
    }
}

TEST_P(Large, quotas_are_exact_to_a_microsecond_and_a_request)
{
    const auto digest = caller_.load(single_script(GetParam()));
    const std::int64_t quotas[] = { 333'333, 1'000'000, 3'000'000, 10'000'000, 999'999'937 };
    const Time windows[] = { 3600 * second, day, 7 * day, 30 * day, 366 * day };
    for (int trace = 0; trace < 400; ++trace) {
        Policy policy;
        policy.algorithm = GetParam();
        policy.rate = { quotas[any(0, 4)], microseconds{ windows[any(0, 4)] } };
        if (keeps_arrival_time(GetParam())) {
            policy.burst = any(0, 2) == 0 ? any(1, policy.rate.quota) : policy.rate.quota;
        }
        const auto model = Model::of(GetParam());
        const std::string key = "large:" + std::to_string(trace);
        Time now = start_of_traces + any(0, day);
        for (int step = 0; step < 12; ++step) {
            now += any(0, 3 * policy.rate.window.count() / policy.rate.quota + 3);
            const auto cost = any(0, 1) == 0 ? any(1, 9) : any(1, policy.limit() / 3);
            const LimitCheck check{ key, policy, cost, false, microseconds{ now } };
            const auto states = caller_.check(digest, { &check, 1 }).states;
            ASSERT_EQ(states.size(), 1U);
            Time decided_at = now;
            const bool granted = model->grants(policy, decided_at, cost);
            if (states[0].granted != granted) {
                break;  // within a microsecond of the edge: both verdicts are right
            }
            expect_near(states[0], model->commit(policy, decided_at, cost, granted, granted));
            ASSERT_FALSE(HasFailure())
                << "trace " << trace << ", step " << step << ": " << policy.rate.quota << " in "
                << policy.rate.window.count() << " us, limit " << policy.limit() << ", cost "
                << cost << ", key is " << server_.ask({ "GET", key });
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Quotas, Large,
    testing::Values(
        Algorithm::fixed_window, Algorithm::sliding_window_counter, Algorithm::token_bucket,
        Algorithm::leaky_bucket, Algorithm::gcra),
    by_name);

class AnyChange : public Large {
protected:
    static bool has_aligned_windows()
    {
        return GetParam() == Algorithm::fixed_window
            || GetParam() == Algorithm::sliding_window_counter;
    }
    /// Repeats the check on a copy of the key, some time later.
    bool granted_later(const std::string& digest, LimitCheck check, microseconds wait)
    {
        caller_.number({ "COPY", check.redis_key, "copy", "REPLACE" });
        check.redis_key = "copy";
        check.now = *check.now + wait;
        const auto states = caller_.check(digest, { &check, 1 }).states;
        return states.size() == 1 && states[0].granted;
    }
};

/// Quota, window, burst and width all change with each request. No exact result is defined for the
/// old state then, but the verdict must be consistent and its retry time exact.
TEST_P(AnyChange, gets_a_consistent_verdict_with_an_exact_retry_time)
{
    const auto digest = caller_.load(single_script(GetParam()));
    Time now = start_of_traces;
    Time newest = now;
    for (int step = 0; step < 2000; ++step) {
        Policy policy;
        policy.algorithm = GetParam();
        policy.rate = { any(1, 40), microseconds{ any(1, 100) * second } };
        if (keeps_arrival_time(GetParam())) {
            policy.burst = any(1, 40);
        }
        if (GetParam() == Algorithm::sliding_window_buckets) {
            policy.precision = microseconds{ any(1, policy.rate.window.count() / second) * second };
        }
        now += any(0, 9) == 0 ? -any(0, 200 * second) : any(0, 5 * second);
        newest = std::max(newest, now);
        const LimitCheck check{ "any", policy, any(0, 5), false, microseconds{ now } };
        const auto states = caller_.check(digest, { &check, 1 }).states;
        ASSERT_EQ(states.size(), 1U) << "step " << step;
        ASSERT_LE(states[0].remaining, policy.limit());
        if (states[0].granted) {
            ASSERT_EQ(states[0].retry_after, microseconds{ 0 });
            continue;
        }
        if (check.cost > policy.limit()) {
            ASSERT_FALSE(states[0].retry_after);
            continue;
        }
        ASSERT_GE(states[0].retry_after, microseconds{ 1 }) << "step " << step;
        if (now >= newest || !has_aligned_windows()) {
            // A window of another length that starts later is dropped before it ends.
            ASSERT_FALSE(granted_later(digest, check, *states[0].retry_after - microseconds{ 1 }));
            ASSERT_TRUE(granted_later(digest, check, *states[0].retry_after)) << "step " << step;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Rates, AnyChange, testing::ValuesIn(rate_algorithms), by_name);

}  // namespace
}  // namespace ratelimit
