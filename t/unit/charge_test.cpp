// Costs that are charged after the decision, and refunds of a part of them: what the scripts leave
// in a real Redis and what a node keeps in its memory, against the model and against each other.

#include "check/script_text.h"
#include "local_limit.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class ChargeTrace : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    using Taken = TraceCaller::Taken;

    void begin(int trace)
    {
        key_ = "rl:test:{" + std::to_string(trace) + "}";
        policy_ = any_policy(GetParam());
        model_ = Model::of(GetParam());
        memory_ = {};
        now_ = start_of_traces + any(0, day);
    }
    void end() { caller_.number({ "DEL", key_ }); }

    LimitCheck request(std::int64_t cost) const
    {
        return { key_, policy_, cost, false, microseconds{ now_ } };
    }
    Verdict by_script(const std::string& digest, const LimitCheck& check)
    {
        const auto answer = caller_.check(digest, { &check, 1 });
        return answer.states.size() == 1 ? answer.states[0] : Verdict{};
    }
    Verdict by_memory(const LimitCheck& request)
    {
        auto check = memory_.check(policy_, now_, request.cost);
        return commit(check, true);
    }
    Verdict by_model(std::int64_t cost, bool charge)
    {
        Time at = now_;
        const bool granted = model_->grants(policy_, at, cost);
        return model_->commit(policy_, at, cost, granted, (granted || charge) && cost > 0);
    }

    void charge(std::int64_t cost)
    {
        const LimitCheck check = request(cost);
        EXPECT_TRUE(by_script(charge_, check).granted);
        auto local = memory_.check(policy_, now_, cost);
        std::visit([](auto& one) { one.charge(); }, local);
    }

    void refund(const Taken& taken, std::int64_t cost)
    {
        const microseconds now{ now_ };
        caller_.refund(refund_, taken, cost, now);
        const Refund what{ cost, *taken.check.now, taken.state.reset };
        switch (GetParam()) {
        case Algorithm::fixed_window:
        case Algorithm::sliding_window_counter:
            ratelimit::refund(memory_.window_counts, policy_, now, what);
            break;
        case Algorithm::sliding_window_log:
        case Algorithm::sliding_window_buckets:
        case Algorithm::concurrency:
            ratelimit::refund(memory_.entries, memory_.total, policy_, what);
            break;
        default:
            ratelimit::refund(memory_.arrival_time, policy_, now, what);
        }
    }

    /// A log has an entry for each unit: its caller charges no more than the quota.
    std::int64_t any_charge()
    {
        const std::int64_t limit = policy_.limit();
        const auto most = GetParam() == Algorithm::sliding_window_log ? limit : 5 * limit;
        return any_of<std::int64_t>({ 0, 1, any(1, limit), limit, any(1, most), most });
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    const std::string single_ = caller_.load(single_script(GetParam()));
    const std::string charge_ = caller_.load(charge_script(GetParam()));
    const std::string refund_ = caller_.load(refund_script());
    std::string key_;
    Policy policy_;
    std::unique_ptr<Model> model_;
    LocalLimit memory_;
    Time now_ = 0;
};

TEST_P(ChargeTrace, scripts_and_memory_charge_beyond_the_limit_as_the_model_does)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 60;
    int refused = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        for (int step = 0; step < 60; ++step) {
            SCOPED_TRACE(where(trace, step, request(any_cost(policy_))));
            if (any(0, 3) == 0) {
                const std::int64_t cost = any_charge();
                charge(cost);
                by_model(cost, true);
            }
            const LimitCheck check = request(any_cost(policy_));
            const Verdict expected = by_model(check.cost, false);
            ASSERT_EQ(text_of(by_script(single_, check)), text_of(expected));
            ASSERT_EQ(text_of(by_memory(check)), text_of(expected));
            refused += expected.granted ? 0 : 1;
            now_ = std::max(now_, any_later(policy_, now_, expected));
        }
        end();
    }
    EXPECT_GT(refused, traces);
}

/// Settlements are late, out of order, or lost. The clock is set back where a refund depends on it.
TEST_P(ChargeTrace, scripts_and_memory_settle_alike_in_any_order)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 60;
    int settled = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        std::vector<Taken> pending;
        for (int step = 0; step < 60; ++step) {
            const LimitCheck check = request(any_cost(policy_));
            SCOPED_TRACE(where(trace, step, check));
            const Verdict state = by_script(single_, check);
            const Verdict local = by_memory(check);
            ASSERT_EQ(local.granted, state.granted);
            ASSERT_EQ(local.remaining, state.remaining);
            if (GetParam() != Algorithm::concurrency) {  // of buckets, and of no use to clients
                ASSERT_EQ(local.reset, state.reset);
            }
            if (state.granted && check.cost > 0) {
                pending.push_back({ check, state });
            }
            now_ = std::max(now_, any_later(policy_, now_, state));
            if (GetParam() == Algorithm::sliding_window_counter && any(0, 9) == 0) {
                now_ -= any(0, policy_.rate.window.count());
            }
            if (!pending.empty() && any(0, 2) > 0) {
                settle_any(
                    pending, [this](std::int64_t cost) { charge(cost); },
                    [this](const Taken& taken, std::int64_t cost) { refund(taken, cost); });
                ++settled;
            }
        }
        end();
    }
    EXPECT_GT(settled, traces);
}

TEST_P(ChargeTrace, a_request_that_cost_nothing_leaves_nothing)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 20;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        const LimitCheck check = request(any(1, policy_.limit()));
        const Verdict state = by_script(single_, check);
        const Verdict local = by_memory(check);
        ASSERT_TRUE(state.granted && local.granted);
        now_ += any_of<Time>({ 0, 1, any(0, policy_.rate.window.count()), state.reset.count() });
        refund({ check, state }, check.cost);
        now_ += 1;  // an arrival time was rounded up to a microsecond
        SCOPED_TRACE(where(trace, 0, check));
        EXPECT_EQ(by_script(single_, request(0)).remaining, policy_.limit());
        EXPECT_EQ(by_memory(request(0)).remaining, policy_.limit());
        end();
    }
}

TEST_P(ChargeTrace, no_charge_is_so_large_that_it_is_forgotten)
{
    begin(0);
    policy_ = Policy{ GetParam(), { 1, microseconds{ day } }, {}, {} };
    constexpr std::int64_t largest = 1'000'000'000;
    const bool log = GetParam() == Algorithm::sliding_window_log;
    for (int i = 0; i < 20; ++i) {
        charge(log ? 1 : largest);
        EXPECT_FALSE(by_script(single_, request(1)).granted) << i;
        EXPECT_FALSE(by_memory(request(1)).granted) << i;
        now_ += second;
    }
    end();
}

TEST(Charge, of_a_log_writes_no_more_entries_than_can_refuse_or_be_refunded)
{
    const RedisServer server;
    TraceCaller caller(server);
    const Policy policy{ Algorithm::sliding_window_log, { 10, microseconds{ day } }, {}, {} };
    const std::string script = charge_script(policy.algorithm);
    const LimitCheck check{ "k", policy, 100'000, false, microseconds{ start_of_traces } };
    EXPECT_EQ(caller.check(caller.load(script), { &check, 1 }).states.size(), 1U);
    EXPECT_EQ(caller.number({ "STRLEN", "k" }), 2 * 10 * 7 + 24);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, ChargeTrace, testing::ValuesIn(rate_algorithms), by_name);

}  // namespace
}  // namespace ratelimit
