// The scripts in a real Redis against the model, step by step over random traces: every decision
// and every number must be equal. TRACE_SEED and TRACE_STEPS in the environment select other and
// longer traces.

#include "check/script_text.h"
#include "model.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"
#include "zone/zone.h"

#include <array>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class Trace : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    /// A key lives as long as its state is needed, and little longer.
    void expect_right_life(
        const LimitCheck& check, const Model::Decision& decision, const TraceCaller::KeyLife& key,
        const Expiry& expiry)
    {
        using Life = TraceCaller::Life;
        ASSERT_NE(key.life, Life::endless);
        if (!decision.taken && key.life != Life::given) {
            return;
        }
        const Policy& policy = check.policy;
        const Time needed = decision.needed_for(policy, check.now->count());
        ASSERT_NE(key.life, Life::none);
        ASSERT_LE(expiry.least_left(), needed + policy.counted_for().count() / 16 + second);
        ASSERT_GE(expiry.most_left(), needed);
    }

    enum class Clock { ours, redis };
    void agree(Clock clock)
    {
        const bool ours = clock == Clock::ours;
        const auto traces = from_environment("TRACE_STEPS", 12'000) / 100;
        for (int trace = 0; trace < traces && !HasFatalFailure(); ++trace) {
            const std::string key = "rl:test:{" + std::to_string(trace) + "}";
            const Policy policy = any_policy(GetParam());
            const auto text = single_script(GetParam());
            const auto digest = ours ? caller_.load(text) : caller_.load_with_clock(text);
            agree_on_trace(digest, key, trace, clock, policy);
            caller_.number({ "DEL", key });
            ASSERT_EQ(caller_.number({ "DBSIZE" }), 0) << "a limit has one key only";
        }
    }

    void agree_on_trace(
        const std::string& digest, const std::string& key, int trace, Clock clock, Policy policy)
    {
        const auto model = Model::of(GetParam());
        Time now = start_of_traces + any(0, day);
        Expiry expiry(clock == Clock::redis);
        const bool forwards = any(0, 2) == 0;
        const auto rarity = any_rarity();
        for (int step = 0; step < 100; ++step) {
            if (any(1, rarity) == 1) {
                change_policy(policy);
            }
            const auto cost = any_cost(policy);
            const LimitCheck check{ key, policy, cost, false, microseconds{ now } };
            const auto answer = clock == Clock::ours ? caller_.check(digest, { &check, 1 })
                                                     : caller_.check_by_redis_clock(digest, check);
            ASSERT_EQ(answer.states.size(), 1U);

            const Model::Decision expected = model->decide(policy, now, cost);
            SCOPED_TRACE(where(trace, step, check));
            ASSERT_EQ(text_of(answer.states[0]), text_of(expected.state));

            expiry.note(answer.lives[0]);
            expect_right_life(check, expected, answer.lives[0], expiry);
            Time later = any_later(policy, now, expected.state);
            if (forwards) {
                later = std::max(now, later);
            }
            expiry.pass(later - now);
            now = later;
            // An expired key is not needed, unless the clock steps back to it.
            if (forwards && expiry.most_left() < 0) {
                caller_.number({ "DEL", key });
            }
            if (HasFatalFailure()) {
                return;
            }
        }
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
};

TEST_P(Trace, script_and_model_agree_on_every_decision_and_every_number)
{
    agree(Clock::ours);
}

/// The script may then keep a key's deadline, which is in Redis's time, instead of setting it.
TEST_P(Trace, script_and_model_agree_by_redis_clock_too)
{
    agree(Clock::redis);
}

TEST_P(Trace, a_keys_expiry_is_set_only_when_it_changes)
{
    const auto digest = caller_.load_with_clock(single_script(GetParam()));
    const Time noon = 1'800'014'400 * second;
    const auto life = [&](const Policy& policy, Time now) {
        const LimitCheck check{ "key", policy, 1, false, microseconds{ now } };
        return caller_.check_by_redis_clock(digest, check).lives.at(0);
    };
    using Life = TraceCaller::Life;
    for (const std::int64_t quota :
         { 36'000, 35'999 }) {  // a tenth of a second each, and just above
        Policy policy{ GetParam(), { quota, microseconds{ 3600 * second } }, {}, {} };
        if (keeps_arrival_time(GetParam())) {
            policy.burst = 9;
        }
        EXPECT_EQ(life(policy, noon).life, Life::given);
        EXPECT_EQ(life(policy, noon).life, Life::kept);
        EXPECT_EQ(life(policy, noon + second / 2).life, Life::kept);
        // The longer window starts at the same time.
        policy.rate.window *= 2;
        if (!keeps_arrival_time(GetParam())) {
            EXPECT_GE(life(policy, noon + second).least_ms, 7'190'000);
        }
        caller_.number({ "DEL", "key" });
    }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, Trace, testing::ValuesIn(rate_algorithms), by_name);

class VariableRate : public Trace {
protected:
    std::string redis_key(const Policy& policy)
    {
        std::string text(zone_.redis_key_length("k"), '\0');
        text.resize(zone_.redis_key("k", zone_.record_of(policy), text.data()).size());
        return text;
    }

    static Zone made_zone()
    {
        Zone zone;
        zone.name = "z";
        zone.key_start = "rl:z:{";
        return zone;
    }

    Zone zone_ = made_zone();
};

/// A separate model for each window length.
TEST_P(VariableRate, each_window_of_a_key_is_counted_exactly_and_separately)
{
    const auto digest = caller_.load(single_script(GetParam()));
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 200;
    zone_.policy.algorithm = GetParam();
    for (int trace = 0; trace < traces; ++trace) {
        std::map<Time, std::unique_ptr<Model>> models;
        Policy policy = any_policy(GetParam());
        Time now = start_of_traces + any(0, day);
        const Time windows[] = { second, 10 * second, any(2, 100) * second, day };
        for (int step = 0; step < 200; ++step) {
            policy.rate.quota = any(1, 30);
            policy.rate.window = microseconds{ windows[any(0, 3)] };
            const auto key = redis_key(policy);
            const LimitCheck check{ key, policy, any_cost(policy), false, microseconds{ now } };
            SCOPED_TRACE(where(trace, step, check));
            const auto states = caller_.check(digest, { &check, 1 }).states;
            ASSERT_EQ(states.size(), 1U);
            auto& model = models[policy.rate.window.count()];
            if (model == nullptr) {
                model = Model::of(GetParam());
            }
            const Verdict expected = model->decide(policy, now, check.cost).state;
            ASSERT_EQ(text_of(states[0]), text_of(expected));
            now = std::max(now, any_later(policy, now, expected));
        }
        for (const auto& [window, model] : models) {
            policy.rate.window = microseconds{ window };
            caller_.number({ "DEL", redis_key(policy) });
        }
        ASSERT_EQ(caller_.number({ "DBSIZE" }), 0) << "one key for each window";
    }
}

INSTANTIATE_TEST_SUITE_P(
    Windows, VariableRate,
    testing::Values(
        Algorithm::fixed_window, Algorithm::sliding_window_counter, Algorithm::sliding_window_log,
        Algorithm::sliding_window_buckets),
    by_name);

class LongLog : public Trace {};

TEST_P(LongLog, is_rewritten_without_losing_a_request)
{
    const auto digest = caller_.load(single_script(GetParam()));
    const auto model = Model::of(GetParam());
    const Policy policy{ GetParam(), { 3000, std::chrono::seconds{ 60 } }, {}, {} };

    // Half of the log expires while the other half stays, repeatedly.
    for (int step = 0; step < 60; ++step) {
        const Time now = start_of_traces + step * 10 * second + step;
        const std::int64_t cost = step % 3 == 2 ? 7 : 750;
        const LimitCheck check{ "long", policy, cost, false, microseconds{ now } };
        const auto states = caller_.check(digest, { &check, 1 }).states;
        ASSERT_EQ(states.size(), 1U);
        const Verdict expected = model->decide(policy, now, cost).state;
        ASSERT_EQ(text_of(states[0]), text_of(expected)) << "step " << step;
    }
    EXPECT_LT(std::stol(server_.ask({ "STRLEN", "long" })), 2 * 3000 * 7 + 100);
}

INSTANTIATE_TEST_SUITE_P(Log, LongLog, testing::Values(Algorithm::sliding_window_log), by_name);

class SeveralTrace : public Trace {};

TEST_P(SeveralTrace, several_limits_are_counted_in_all_or_in_none)
{
    const auto digest = caller_.load(several_script(all_algorithms));
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 100;

    for (int trace = 0; trace < traces; ++trace) {
        const auto limits = static_cast<std::size_t>(any(2, 5));
        std::vector<std::unique_ptr<Model>> models;
        std::vector<std::string> keys;
        std::vector<LimitCheck> checks(limits);
        for (std::size_t i = 0; i < limits; ++i) {
            const Algorithm algorithm = rate_algorithms[random_() % rate_algorithms.size()];
            models.push_back(Model::of(algorithm));
            keys.push_back("rl:z" + std::to_string(i) + ":{" + std::to_string(trace) + "}");
            checks[i].policy = any_policy(algorithm);
            checks[i].shadow = any(0, 3) == 0;
        }
        Time now = start_of_traces + any(0, day);
        const auto rarity = any_rarity();

        for (int step = 0; step < 100; ++step) {
            for (std::size_t i = 0; i < limits; ++i) {
                if (any(1, rarity) == 1) {
                    change_policy(checks[i].policy);
                }
                checks[i].redis_key = keys[i];
                checks[i].cost = any_cost(checks[i].policy);
                checks[i].now = microseconds{ now };
            }
            const auto answer = caller_.check(digest, checks);
            ASSERT_EQ(answer.states.size(), limits);

            std::vector<Time> times(limits, now);
            std::vector<bool> granted(limits);
            bool all_granted = true;
            for (std::size_t i = 0; i < limits; ++i) {
                granted[i] = models[i]->grants(checks[i].policy, times[i], checks[i].cost);
                all_granted = all_granted && (granted[i] || checks[i].shadow);
            }
            Verdict last;
            for (std::size_t i = 0; i < limits; ++i) {
                const bool take = all_granted && granted[i] && checks[i].cost > 0;
                last =
                    models[i]->commit(checks[i].policy, times[i], checks[i].cost, granted[i], take);
                ASSERT_EQ(text_of(answer.states[i]), text_of(last))
                    << "limit " << i << " of " << limits << ", " << where(trace, step, checks[i]);
                ASSERT_NE(answer.lives[i].life, TraceCaller::Life::endless);
            }
            now = any_later(checks.back().policy, now, last);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Several, SeveralTrace, testing::Values(Algorithm::gcra), [](const auto&) {
    return std::string("mixed");
});

}  // namespace
}  // namespace ratelimit
