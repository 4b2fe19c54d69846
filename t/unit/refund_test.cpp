// The state after refund_script in a real Redis, against the model of a limit that never had the
// refunded request.

#include "check/script_text.h"
#include "model.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class RefundTrace : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    /// A request that this limit counted and another limit refused.
    struct Taken : TraceCaller::Taken {
        Verdict without;  // the verdict as if it had not been counted
    };

    void begin(int trace)
    {
        key_ = "rl:test:{" + std::to_string(trace) + "}";
        policy_ = any_policy(GetParam());
        model_ = Model::of(GetParam());
        now_ = start_of_traces + any(0, day);
    }
    void end() { caller_.number({ "DEL", key_ }); }

    LimitCheck request(std::int64_t cost) const
    {
        return { key_, policy_, cost, false, microseconds{ now_ } };
    }

    /// Empty: the request was refused or counted nothing.
    std::optional<Taken> take(std::int64_t cost)
    {
        const LimitCheck check = request(cost);
        const auto answer = caller_.check(several_, { &check, 1 }, true);
        if (answer.states.size() != 1 || !answer.states[0].granted || cost == 0) {
            return std::nullopt;
        }
        return Taken{ { check, answer.states[0] }, answer.without[0] };
    }

    void refund(const Taken& taken)
    {
        caller_.refund(refund_, taken, taken.check.cost, microseconds{ now_ });
    }

    struct Answers {
        Verdict script;
        Verdict model;
    };
    /// Another request. The model counts the requests that the script admits.
    Answers ask(std::int64_t cost)
    {
        const LimitCheck check = request(cost);
        const auto answer = caller_.check(single_, { &check, 1 });
        if (answer.states.size() != 1) {
            return {};
        }
        Time at = now_;
        const bool granted = model_->grants(policy_, at, cost);
        const bool counted = answer.states[0].granted && cost > 0;
        return { answer.states[0], model_->commit(policy_, at, cost, granted, counted) };
    }

    /// Time passes, by steps after which no key has expired.
    void pass(const Verdict& last) { now_ = std::max(now_, any_later(policy_, now_, last)); }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    const std::string single_ = caller_.load(single_script(GetParam()));
    const std::string several_ = caller_.load(several_script(std::array{ GetParam() }));
    const std::string refund_ = caller_.load(refund_script());
    std::string key_;
    Policy policy_;
    std::unique_ptr<Model> model_;
    Time now_ = 0;
};

TEST_P(RefundTrace, a_request_refunded_before_others_arrive_leaves_no_trace)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 20;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        for (int step = 0; step < 20; ++step) {
            SCOPED_TRACE(where(trace, step, request(any_cost(policy_))));
            Verdict last = ask(any(0, 1) == 0 ? 1 : any_cost(policy_)).model;
            pass(last);
            if (const auto taken = take(any_cost(policy_))) {
                if (any(0, 1) == 0) {
                    pass(taken->state);
                }
                refund(*taken);
            }
            auto [script, model] = ask(0);
            if (keeps_arrival_time(GetParam()) && script.reset != model.reset) {
                // With other debts, the share of the request is known to a microsecond only.
                ASSERT_EQ(script.reset, model.reset + microseconds{ 1 });
                ASSERT_LE(model.remaining - script.remaining, 1);
                now_ += 1;
                continue;
            }
            if (GetParam() == Algorithm::concurrency) {
                // It tells where units are counted, also if the newest bucket has none any more.
                script.reset = model.reset;
            }
            ASSERT_EQ(text_of(script), text_of(model));
            last = script;
            pass(last);
        }
        end();
    }
}

TEST_P(RefundTrace, the_verdict_without_the_refunded_request_equals_a_peek)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 100;
    int shown = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        for (int step = 0; step < 20; ++step) {
            SCOPED_TRACE(where(trace, step, request(any_cost(policy_))));
            if (any(0, 2) == 0) {
                change_policy(policy_);
            }
            const auto peek = ask(0).script;
            if (const auto taken = take(any_cost(policy_))) {
                ASSERT_EQ(text_of(taken->without), text_of(peek));
                refund(*taken);
                ++shown;
            }
            now_ = any_later(policy_, now_, ask(any(0, 1)).script);
        }
        end();
    }
    EXPECT_GT(shown, traces);
}

TEST_P(RefundTrace, refunds_never_admit_more_than_without_the_refunded_requests)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 60;
    int passed = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        std::vector<Taken> taken;
        for (int step = 0; step < 60; ++step) {
            const auto cost = any_cost(policy_);
            SCOPED_TRACE(where(trace, step, request(cost)));
            // With an arrival time, one refund at a time: see the script.
            const bool may = taken.empty() || !keeps_arrival_time(GetParam());
            if (may && any(0, 2) == 0) {
                if (const auto more = take(cost)) {
                    taken.push_back(*more);
                }
            } else if (!taken.empty() && any(0, 1) == 0) {
                const auto which = taken.begin() + any(0, std::ssize(taken) - 1);
                refund(*which);
                taken.erase(which);
            }
            const auto [script, model] = ask(any_cost(policy_));
            ASSERT_LE(script.granted, model.granted);
            ASSERT_LE(script.remaining, model.remaining);
            passed += script.granted ? 1 : 0;
            pass(script);
        }
        end();
    }
    EXPECT_GT(passed, traces);
}

TEST_P(RefundTrace, a_clock_that_steps_back_refunds_no_more_than_was_counted)
{
    begin(0);
    policy_ = Policy{ GetParam(), { 10, microseconds{ 100 * second } }, {}, {} };
    if (keeps_arrival_time(GetParam())) {
        policy_.burst = GetParam() == Algorithm::token_bucket ? 10 : 9;
    }
    if (GetParam() == Algorithm::sliding_window_buckets) {
        policy_.precision = microseconds{ second };
    }
    const Time began = start_of_traces - start_of_traces % (100 * second) + second / 2;
    now_ = began;
    EXPECT_TRUE(ask(1).script.granted);
    now_ = began + 2 * second;
    EXPECT_TRUE(ask(1).script.granted);

    now_ = began;
    const auto taken = take(5);
    ASSERT_TRUE(taken);
    refund(*taken);

    now_ = began + 2 * second;
    const auto left = ask(0).script.remaining;
    EXPECT_LE(left, 8);  // two other requests are counted
    EXPECT_GE(left, 3);  // and the refunded five may still be counted
    now_ = began + 101 * second;
    EXPECT_LE(ask(0).script.remaining, 10);
    end();
}

class BucketRefund : public RefundTrace {
protected:
    void SetUp() override
    {
        begin(0);
        policy_ = Policy{ GetParam(), { 10, microseconds{ 100 * second } }, {}, {} };
        policy_.precision = microseconds{ second };
        now_ = start_of_traces;
    }
};

TEST_P(BucketRefund, takes_nothing_from_a_bucket_that_has_less)
{
    const auto taken = take(5);
    ASSERT_TRUE(taken);
    caller_.number({ "DEL", key_ });  // as when an operator frees the key
    EXPECT_TRUE(ask(1).script.granted);
    refund(*taken);
    EXPECT_EQ(ask(0).script.remaining, 9);
}

TEST_P(BucketRefund, takes_nothing_from_another_bucket)
{
    EXPECT_TRUE(ask(3).script.granted);
    now_ += 10 * second;
    const auto taken = take(2);
    ASSERT_TRUE(taken);
    caller_.number({ "DEL", key_ });
    now_ -= 10 * second;
    EXPECT_TRUE(ask(3).script.granted);
    now_ += 20 * second;
    EXPECT_TRUE(ask(1).script.granted);
    refund(*taken);
    EXPECT_EQ(ask(0).script.remaining, 6);
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, BucketRefund, testing::Values(Algorithm::sliding_window_buckets), by_name);

INSTANTIATE_TEST_SUITE_P(Algorithms, RefundTrace, testing::ValuesIn(rate_algorithms), by_name);

}  // namespace
}  // namespace ratelimit
