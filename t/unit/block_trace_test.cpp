// Keys that are blocked after a refusal (Policy::block), together with charges and refunds: what
// the scripts leave in a real Redis and what a node keeps in its memory, against the model.

#include "check/script_text.h"
#include "redis_server.h"
#include "slab_zone.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <vector>

namespace ratelimit {
namespace {

using Time = Model::Time;
using std::chrono::seconds;

constexpr Time start_of_traces = 1'800'000'000 * second;
constexpr microseconds start{ start_of_traces };
constexpr std::string_view key = "rl:test:{key}";

class BlockTrace : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    struct Taken {
        LimitCheck check;
        Verdict state;
    };

    void begin()
    {
        do {
            policy_ = any_blocking_policy(GetParam());
        } while (policy_.block.count() == 0);
        caller_.number({ "DEL", key });
        single_ = caller_.load(single_script(GetParam(), policy_.block));
        charge_ = caller_.load(charge_script(GetParam(), policy_.block));
        model_ = Model::of(GetParam());
        memory_.memory().forget_key(key);
        now_ = start_of_traces + any(0, day);
    }

    LimitCheck request(std::int64_t cost) const
    {
        return { key, policy_, cost, false, microseconds{ now_ } };
    }
    Verdict by_script(const LimitCheck& check)
    {
        const auto answer = caller_.check(single_, { &check, 1 });
        return answer.states.size() == 1 ? answer.states[0] : Verdict{};
    }
    Verdict by_memory(std::int64_t cost)
    {
        const LocalRequest local{ key, policy_, cost };
        const Verdict before = memory_.memory().local_limiter().peek(local, microseconds{ now_ });
        const Verdict state = memory_.decide(local, microseconds{ now_ });
        EXPECT_EQ(before.granted, state.granted);
        EXPECT_EQ(before.block == Block::lasts, state.block == Block::lasts);
        return state;
    }
    Verdict by_model(std::int64_t cost)
    {
        Time at = now_;
        const bool granted = model_->grants(policy_, at, cost);
        return model_->commit(policy_, at, cost, granted, granted && cost > 0);
    }

    void charge(std::int64_t cost)
    {
        const LimitCheck check = request(cost);
        const auto answer = caller_.check(charge_, { &check, 1 });
        EXPECT_TRUE(answer.states.size() == 1 && answer.states[0].granted);
        memory_.memory().local_limiter().charge({ key, policy_, cost }, microseconds{ now_ });
    }
    void charge_model(std::int64_t cost)
    {
        Time at = now_;
        const bool granted = model_->grants(policy_, at, 0);  // cost 0: no block begins
        if (model_->commit(policy_, at, 0, granted, false).block == Block::none) {
            model_->grants(policy_, at, cost);
            model_->commit(policy_, at, cost, true, cost > 0);
        }
    }
    void refund(Taken taken, std::int64_t cost)
    {
        const microseconds at = *taken.check.now;
        taken.check.now = microseconds{ now_ };
        taken.check.cost = cost;
        caller_.refund(refund_, taken.check, at, taken.state);
        memory_.memory().local_limiter().refund(
            { key, policy_, 1 }, microseconds{ now_ }, { cost, at, taken.state.reset });
    }

    RedisServer server_;
    TraceCaller caller_{ server_.port() };
    TestZone memory_{ std::size_t{ 1 } << 20U };
    const std::string refund_ = caller_.load(refund_script());
    std::string single_;
    std::string charge_;
    Policy policy_;
    std::unique_ptr<Model> model_;
    Time now_ = 0;
};

TEST_P(BlockTrace, scripts_and_memory_block_and_charge_as_the_model_does)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 60;
    int blocked = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin();
        const bool forwards = any(0, 2) > 0;
        for (int step = 0; step < 60; ++step) {
            if (forwards && any(0, 3) == 0) {
                const std::int64_t cost = any(1, policy_.limit());
                charge(cost);
                charge_model(cost);
            }
            const LimitCheck check = request(any_cost(policy_));
            SCOPED_TRACE(where(trace, step, check));
            const Verdict expected = by_model(check.cost);
            ASSERT_EQ(text_of(by_script(check)), text_of(expected));
            if (forwards) {  // memory drops a block that has ended, before a request is counted
                ASSERT_EQ(text_of(by_memory(check.cost)), text_of(expected));
            }
            blocked += expected.block == Block::none ? 0 : 1;
            const Time later = any_later(policy_, now_, expected);
            now_ = forwards ? std::max(now_, later) : later;
        }
    }
    EXPECT_GT(blocked, traces);
}

/// Settlements are late, out of order, or lost, also before, within and after blocks.
TEST_P(BlockTrace, scripts_and_memory_settle_alike_around_blocks)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 60;
    int settled = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin();
        std::vector<Taken> pending;
        for (int step = 0; step < 60; ++step) {
            const LimitCheck check = request(any_cost(policy_));
            SCOPED_TRACE(where(trace, step, check));
            const Verdict state = by_script(check);
            const Verdict local = by_memory(check.cost);
            ASSERT_EQ(local.granted, state.granted);
            ASSERT_EQ(local.remaining, state.remaining);
            ASSERT_EQ(local.block, state.block);
            if (state.granted && check.cost > 0) {
                pending.push_back({ check, state });
            }
            now_ = std::max(now_, any_later(policy_, now_, state));
            if (!pending.empty() && any(0, 2) > 0) {
                settle_any(
                    pending, [this](std::int64_t cost) { charge(cost); },
                    [this](const Taken& taken, std::int64_t cost) { refund(taken, cost); });
                ++settled;
            }
        }
    }
    EXPECT_GT(settled, traces);
}

TEST_P(BlockTrace, nothing_prolongs_shortens_or_ends_a_block)
{
    Policy policy{ GetParam(), { 2, microseconds{ day } }, {}, {}, seconds{ 100 } };
    if (keeps_arrival_time(GetParam()) && GetParam() != Algorithm::token_bucket) {
        policy.burst = 1;
    }
    begin();
    policy_ = policy;
    single_ = caller_.load(single_script(GetParam(), policy_.block));
    charge_ = caller_.load(charge_script(GetParam(), policy_.block));
    const auto both = [&](std::int64_t cost) {
        const Verdict state = by_script(request(cost));
        EXPECT_EQ(text_of(by_memory(cost)), text_of(state));
        return state;
    };
    const LimitCheck first = request(1);
    const Verdict taken = both(1);
    EXPECT_TRUE(taken.granted && both(1).granted);
    EXPECT_EQ(both(1), begun_block(seconds{ 100 }));
    now_ += 40 * second;
    refund({ first, taken }, 1);
    charge(5);
    EXPECT_EQ(both(1), blocked(1, seconds{ 60 }));
    EXPECT_EQ(both(3), blocked(3, seconds{ 60 })) << "also a cost that never passes";
    EXPECT_EQ(both(0), blocked(0, seconds{ 60 })) << "cost 0 reads it";
    now_ -= 3600 * second;
    EXPECT_EQ(both(1), blocked(1, seconds{ 100 })) << "the clock ran backwards";
    now_ += 99 * second;
    EXPECT_EQ(both(1), blocked(1, seconds{ 1 }));
    now_ += second;
    EXPECT_EQ(both(1).remaining, 1) << "nothing is counted";
    EXPECT_EQ(both(3), begun_block(seconds{ 100 })) << "a cost above the limit is a refusal";
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, BlockTrace,
    // The last is concurrency, which has no block.
    testing::ValuesIn(all_algorithms.begin(), all_algorithms.end() - 1),
    [](const auto& test) { return std::string(name_of(test.param)); });

TEST(LocalBlock, is_kept_for_the_key_instead_of_its_state_and_can_be_freed)
{
    TestZone zone;
    const Policy policy{
        Algorithm::sliding_window_log, { 1, std::chrono::hours{ 24 } }, {}, {}, seconds{ 100 }
    };
    const auto decide = [&](std::string_view name, microseconds now = start) {
        return zone.decide({ name, policy }, now).block;
    };
    EXPECT_EQ(decide("a"), Block::none);
    EXPECT_EQ(decide("b"), Block::none);
    EXPECT_EQ(decide("a"), Block::begins);
    EXPECT_EQ(zone.memory().keys(), 2U);
    EXPECT_EQ(decide("a"), Block::lasts);
    zone.memory().forget_key("a");
    EXPECT_EQ(decide("a"), Block::none);
    EXPECT_EQ(decide("a"), Block::begins);
    EXPECT_EQ(decide("b"), Block::begins);
    EXPECT_EQ(decide("a", start + seconds{ 100 }), Block::none);
    EXPECT_EQ(zone.memory().keys(), 1U) << "blocks that have ended are removed";
}

}  // namespace
}  // namespace ratelimit
