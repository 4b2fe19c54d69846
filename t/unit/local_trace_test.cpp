// Decisions in a node's memory, against the model and the scripts, step by step over random traces:
// every decision and every number must be equal.

#include "check/script_text.h"
#include "local_limit.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class LocalTrace : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    /// A check that is not committed must change nothing.
    void check_without_commit(LocalLimit& limit, const Policy& policy, Time now)
    {
        const auto check = limit.check(policy, now, any_cost(policy));
        static_cast<void>(granted(check));
    }
};

TEST_P(LocalTrace, memory_and_model_agree_on_every_decision_and_every_number)
{
    const auto traces = from_environment("TRACE_STEPS", 60'000) / 100;

    for (int trace = 0; trace < traces; ++trace) {
        const auto model = Model::of(GetParam());
        LocalLimit limit;
        Policy policy = any_policy(GetParam());
        Time now = start_of_traces + any(0, day);
        Time forgotten_at = now;
        const bool forwards = any(0, 2) == 0;
        const auto rarity = any_rarity();

        for (int step = 0; step < 100; ++step) {
            if (any(1, rarity) == 1) {
                change_policy(policy);
            }
            if (forwards && now >= forgotten_at) {
                limit = {};
            }
            if (any(0, 9) == 0) {
                check_without_commit(limit, policy, now + any(0, policy.rate.window.count()));
            }
            const LimitCheck request{ "", policy, any_cost(policy), false, microseconds{ now } };
            SCOPED_TRACE(where(trace, step, request));
            auto check = limit.check(policy, now, request.cost);
            const Model::Decision expected = model->decide(policy, now, request.cost);
            ASSERT_EQ(granted(check), expected.state.granted);
            ASSERT_EQ(text_of(commit(check, expected.taken)), text_of(expected.state));
            if (expected.taken) {
                ASSERT_EQ(life(check), expected.needed_for(policy, now)) << "to the microsecond";
            }
            ASSERT_GE(life(check), 0);

            forgotten_at = now + life(check);
            const Time later = any_later(policy, now, expected.state);
            now = forwards ? std::max(now, later) : later;
        }
    }
}

/// With a variable rate, quota, window, burst and width may all change at once. The scripts are the
/// reference here.
TEST_P(LocalTrace, memory_and_script_agree_when_the_whole_policy_changes_with_each_request)
{
    RedisServer server;
    TraceCaller caller{ server };
    const auto digest = caller.load(single_script(GetParam()));
    LocalLimit limit;
    Time now = start_of_traces;
    for (int step = 0; step < 8000; ++step) {
        Policy policy;
        policy.algorithm = GetParam();
        policy.rate = { any(1, 40), microseconds{ any(1, 100) * second } };
        if (GetParam() == Algorithm::concurrency) {
            policy.rate.window = microseconds{ 40 * second };  // only a reload changes `hold`
        }
        if (keeps_arrival_time(GetParam())) {
            policy.burst = any(1, 40);
        }
        if (GetParam() == Algorithm::sliding_window_buckets) {
            set_width(policy);
        }
        const LimitCheck request{ "any", policy, any(0, 5), false, microseconds{ now } };
        SCOPED_TRACE(where(0, step, request));
        const auto answer = caller.check(digest, { &request, 1 });
        ASSERT_EQ(answer.states.size(), 1U);
        auto check = limit.check(policy, now, request.cost);
        ASSERT_EQ(text_of(commit(check, true)), text_of(answer.states[0]));
        now += any(0, 9) == 0 ? -any(0, 200 * second) : any(0, 5 * second);
    }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LocalTrace, testing::ValuesIn(rate_algorithms), by_name);

class LargeLocal : public LocalTrace {};

/// No double rounds here: where the scripts may be off by one, this is exact. Without the logs, as
/// the model has an entry for each of their requests: see local_limit_test.cpp.
TEST_P(LargeLocal, the_largest_rates_bursts_and_costs_are_exact)
{
    const std::int64_t quotas[] = {
        1, 3, 333'333, 1'000'000, 10'000'000, 999'999'937, 1'000'000'000
    };
    const Time windows[] = { second, 3600 * second, day, 7 * day, 366 * day };
    for (int trace = 0; trace < 5000; ++trace) {
        Policy policy;
        policy.algorithm = GetParam();
        policy.rate = { quotas[any(0, 6)], microseconds{ windows[any(0, 4)] } };
        if (keeps_arrival_time(GetParam())) {
            policy.burst = any(1, any(0, 2) == 0 ? 200 * policy.rate.quota : policy.rate.quota);
        }
        const auto model = Model::of(GetParam());
        LocalLimit limit;
        Time now = start_of_traces + any(0, day);
        for (int step = 0; step < 20; ++step) {
            const auto most = policy.limit();
            const auto cost = any_of<std::int64_t>({ any(1, 9), any(1, most / 3 + 1), any(1, most),
                                                     most, most + 1, 0, 1'000'000'000'000 });
            const LimitCheck request{ "", policy, cost, false, microseconds{ now } };
            SCOPED_TRACE(where(trace, step, request));
            auto check = limit.check(policy, now, cost);
            const Model::Decision expected = model->decide(policy, now, cost);
            ASSERT_EQ(text_of(commit(check, expected.taken)), text_of(expected.state));
            now = any(0, 2) > 0
                ? any_later(policy, now, expected.state)
                : now + any(0, 3 * policy.rate.window.count() / policy.rate.quota + 3);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Quotas, LargeLocal,
    testing::Values(
        Algorithm::fixed_window, Algorithm::sliding_window_counter, Algorithm::token_bucket,
        Algorithm::leaky_bucket, Algorithm::gcra),
    by_name);

class SeveralLocal : public testing::Test, protected TraceMaker {};

TEST_F(SeveralLocal, limits_are_counted_in_all_or_in_none)
{
    const auto traces = from_environment("TRACE_STEPS", 60'000) / 100;
    for (int trace = 0; trace < traces; ++trace) {
        const auto count = static_cast<std::size_t>(any(2, 5));
        std::vector<std::unique_ptr<Model>> models;
        std::vector<LocalLimit> limits(count);
        std::vector<LimitCheck> requests(count);
        for (LimitCheck& request : requests) {
            const auto algorithm = static_cast<Algorithm>(any(0, algorithm_count - 1));
            models.push_back(Model::of(algorithm));
            request.policy = any_policy(algorithm);
            request.shadow = any(0, 3) == 0;
        }
        Time now = start_of_traces + any(0, day);
        const auto rarity = any_rarity();

        for (int step = 0; step < 100; ++step) {
            std::vector<LocalLimit::Check> checks;
            std::vector<Time> times(count, now);
            std::vector<bool> passes(count);
            bool all_pass = true;
            for (std::size_t i = 0; i < count; ++i) {
                LimitCheck& request = requests[i];
                if (any(1, rarity) == 1) {
                    change_policy(request.policy);
                }
                request.cost = any_cost(request.policy);
                request.now = microseconds{ now };
                checks.push_back(limits[i].check(request.policy, now, request.cost));
                passes[i] = models[i]->grants(request.policy, times[i], request.cost);
                ASSERT_EQ(granted(checks[i]), passes[i]) << where(trace, step, request);
                all_pass = all_pass && (passes[i] || request.shadow);
            }
            Verdict last;
            for (std::size_t i = 0; i < count; ++i) {
                const auto& [key, policy, cost, shadow, at, holding, block_key, apart] =
                    requests[i];
                const bool take = all_pass && passes[i] && cost > 0;
                last = models[i]->commit(policy, times[i], cost, passes[i], take);
                ASSERT_EQ(text_of(commit(checks[i], all_pass)), text_of(last))
                    << "limit " << i << " of " << count << ", " << where(trace, step, requests[i]);
            }
            now = any_later(requests.back().policy, now, last);
        }
    }
}

}  // namespace
}  // namespace ratelimit
