// Keys that are blocked after a refusal (Policy::block), together with charges and refunds: what
// the scripts leave in a real Redis and what a node keeps in its memory, against the model, and
// beside a limit without a block.

#include "check/script_text.h"
#include "redis_server.h"
#include "slab_zone.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <algorithm>
#include <string>
#include <vector>

namespace ratelimit {
namespace {

using Time = Model::Time;
using std::chrono::seconds;

constexpr microseconds start{ start_of_traces };
constexpr std::string_view key = "rl:test:{key}";
constexpr std::string_view block_key = "rl:test:{key}:block";
constexpr std::string_view free_key = "rl:test:{free}";

class BlockTrace : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    using Taken = TraceCaller::Taken;

    void begin(const Policy& policy)
    {
        policy_ = policy;
        caller_.number({ "DEL", key, block_key, free_key });
        single_ = caller_.load(single_script(GetParam(), true));
        unblocked_ = caller_.load(single_script(GetParam()));
        charge_ = caller_.load(charge_script(GetParam()));
        model_ = Model::of(GetParam());
        memory_.memory().forget_key(key);
        now_ = start_of_traces + any(0, day);
    }
    void begin()
    {
        Policy policy;
        do {
            policy = any_blocking_policy(GetParam());
        } while (policy.block.count() == 0);
        begin(policy);
    }

    LimitCheck request(std::int64_t cost) const
    {
        return { key, policy_, cost, false, microseconds{ now_ }, nullptr, block_key };
    }
    /// The same of the key that has no block.
    LimitCheck unblocked(LimitCheck check) const
    {
        check.redis_key = free_key;
        check.policy.block = {};
        return check;
    }
    Verdict by_script(const LimitCheck& check)
    {
        const auto& digest = check.policy.block.count() > 0 ? single_ : unblocked_;
        const auto answer = caller_.check(digest, { &check, 1 });
        return answer.states.size() == 1 ? answer.states[0] : Verdict{};
    }
    Verdict by_memory(std::int64_t cost)
    {
        const LocalRequest local{ key, policy_, cost };
        const Verdict before = memory_.memory().local_limiter().peek(local, microseconds{ now_ });
        const Verdict state = memory_.decide(local, microseconds{ now_ });
        EXPECT_EQ(before.granted, state.granted);
        EXPECT_EQ(before.blocked, state.blocked);
        return state;
    }

    /// After a refusal: the key is blocked from `later` on.
    bool block(Time later = 0) { return block_of(now_, later); }
    /// After a refusal at `refused`.
    bool block_of(Time refused, Time later)
    {
        const microseconds at{ refused };
        const microseconds begins{ refused + later };
        return caller_.state_block(block_, request(1), { at, begins, begins + policy_.block });
    }
    bool block_in_memory()
    {
        // The model has no steady clock, so that this one knows of no step.
        const microseconds now{ now_ };
        return memory_.memory().local_limiter().begin_block({ key, policy_, 1 }, { now, now, now })
            == LocalLimiter::Block::began;
    }
    /// Units that were counted at `counted` are returned; or, if that was lost, count for this
    /// long.
    void lift(Time counted, Time lasts = 0)
    {
        caller_.state_block(
            block_, request(1),
            { microseconds{ counted }, seconds{ 1 }, {}, microseconds{ lasts } });
    }

    void charge(std::int64_t cost)
    {
        const LimitCheck check = unblocked(request(cost));
        LimitCheck blocked_key = check;
        blocked_key.redis_key = key;
        const auto answer = caller_.check(charge_, { &blocked_key, 1 });
        EXPECT_TRUE(answer.states.size() == 1 && answer.states[0].granted);
        caller_.check(charge_, { &check, 1 });
        memory_.memory().local_limiter().charge({ key, policy_, cost }, microseconds{ now_ });
    }
    void refund(const Taken& taken, std::int64_t cost)
    {
        const microseconds now{ now_ };
        caller_.refund(refund_, taken, cost, now);
        memory_.memory().local_limiter().refund(
            { key, policy_, 1 }, now, { cost, *taken.check.now, taken.state.reset });
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    TestZone memory_{ std::size_t{ 1 } << 20U };
    const std::string refund_ = caller_.load(refund_script());
    const std::string block_ = caller_.load(block_script());
    std::string single_;
    std::string unblocked_;
    std::string charge_;
    Policy policy_;
    std::unique_ptr<Model> model_;
    Time now_ = 0;
};

TEST_P(BlockTrace, scripts_and_memory_block_as_the_model_does)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 60;
    int blocks = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin();
        const bool forwards = any(0, 2) > 0;
        const bool lifts = !forwards && any(0, 1) == 0;
        for (int step = 0; step < 60; ++step) {
            const LimitCheck check = request(any_cost(policy_));
            SCOPED_TRACE(where(trace, step, check));
            const Verdict expected = model_->decide(policy_, now_, check.cost).state;
            ASSERT_EQ(text_of(by_script(check)), text_of(expected));
            if (forwards) {
                ASSERT_EQ(text_of(by_memory(check.cost)), text_of(expected));
            }
            if (!expected.granted && any(0, 1) == 0) {
                const Time later = lifts ? any(0, 2) * second : 0;
                const bool began = model_->begin_block(policy_, now_, now_, now_ + later);
                ASSERT_EQ(block(later), began);
                ASSERT_TRUE(!forwards || block_in_memory() == began);
                blocks += began ? 1 : 0;
            }
            if (lifts && any(0, 3) == 0) {
                const Time counted = now_ - any(0, 3) * second;
                const Time lasts = std::max<Time>(any(-3, 3), 0) * second;
                lift(counted, lasts);
                model_->spare(now_, counted, lasts);
            }
            const Time later = any_later(policy_, now_, expected);
            now_ = forwards ? std::max(now_, later) : later;
        }
    }
    EXPECT_GT(blocks, traces);
}

/// Whatever is blocked, charged and refunded: what passes would pass without a block, and the
/// counts are those of a key that had only the requests that passed.
TEST_P(BlockTrace, a_block_never_lets_more_through_and_forgives_no_debt)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 60;
    int settled = 0;
    for (int trace = 0; trace < traces; ++trace) {
        begin();
        std::vector<Taken> pending;
        for (int step = 0; step < 60; ++step) {
            const LimitCheck check = request(any_cost(policy_));
            SCOPED_TRACE(where(trace, step, check));
            LimitCheck without = unblocked(check);
            without.cost = 0;
            Verdict counts = by_script(without);
            const Verdict state = by_script(check);
            const Verdict local = by_memory(check.cost);
            ASSERT_EQ(local.granted, state.granted);
            ASSERT_EQ(local.remaining, state.remaining);
            ASSERT_EQ(local.blocked, state.blocked);
            if (state.blocked.count() == 0 || state.granted) {
                without.cost = check.cost;
                counts = by_script(without);
                ASSERT_EQ(counts.granted, state.granted);
            }
            apply_block(counts, state.blocked);
            ASSERT_EQ(counts.remaining, state.remaining);
            ASSERT_EQ(counts.reset, state.reset);
            if (state.granted && check.cost > 0) {
                pending.push_back({ check, state });
            } else if (!state.granted) {
                ASSERT_EQ(block(), block_in_memory());
            }
            now_ = std::max(now_, any_later(policy_, now_, state));
            if (!pending.empty() && any(0, 2) > 0) {
                settle_any(
                    pending, [this](std::int64_t cost) { charge(cost); },
                    [this](const Taken& taken, std::int64_t cost) {
                        refund(taken, cost);
                        const Taken of_free{ unblocked(taken.check), taken.state };
                        caller_.refund(refund_, of_free, cost, microseconds{ now_ });
                    });
                ++settled;
            }
        }
    }
    EXPECT_GT(settled, traces);
}

TEST_P(BlockTrace, nothing_prolongs_or_ends_a_block_but_the_return_of_what_it_rests_on)
{
    Policy policy{ GetParam(), { 2, microseconds{ day } }, {}, {}, seconds{ 100 } };
    if (keeps_arrival_time(GetParam()) && GetParam() != Algorithm::token_bucket) {
        policy.burst = 1;
    }
    begin(policy);
    const auto rest = [&](std::int64_t cost) {
        const Verdict state = by_script(request(cost));
        EXPECT_EQ(state.granted, by_memory(cost).granted);
        EXPECT_EQ(state.blocked, by_memory(cost).blocked);
        return state.blocked;
    };
    const LimitCheck first = request(1);
    const Verdict taken = by_script(first);
    EXPECT_TRUE(by_memory(1).granted);
    EXPECT_TRUE(block() && block_in_memory());
    EXPECT_FALSE(block() || block_in_memory());
    now_ += 40 * second;
    EXPECT_FALSE(block() || block_in_memory());
    refund({ first, taken }, 1);
    charge(5);
    EXPECT_EQ(rest(1), seconds{ 60 });
    EXPECT_EQ(rest(3), seconds{ 60 });
    EXPECT_EQ(by_script(request(3)).retry_after, std::nullopt) << "a cost that never passes";
    EXPECT_EQ(rest(0), seconds{ 60 }) << "cost 0 reads it";
    now_ -= 3600 * second;
    EXPECT_EQ(rest(1), seconds{ 100 }) << "the clock ran backwards";
    EXPECT_FALSE(block()) << "it is only shortened";
    now_ += 99 * second;
    EXPECT_EQ(rest(1), seconds{ 1 });
    lift(now_ - 2 * second);
    EXPECT_EQ(rest(1), seconds{ 1 }) << "those units were counted after the refusal";
    now_ += second;
    EXPECT_EQ(rest(1), seconds{ 0 });
    EXPECT_TRUE(block() && block_in_memory());
    lift(now_);
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 0 }) << "lifted";
    EXPECT_FALSE(block()) << "nor does a refusal begin one that came before";
    now_ += second;
    EXPECT_TRUE(block(2 * second));
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 0 }) << "not yet";
    now_ += 2 * second;
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 100 });
}

TEST_P(BlockTrace, an_earlier_refusal_that_comes_later_does_not_replace_a_block)
{
    begin({ GetParam(), { 2, microseconds{ day } }, {}, {}, seconds{ 100 } });
    const Time refused = now_;
    now_ += second;
    lift(refused - second);
    now_ += second;
    const Time counted = now_;
    now_ += second;
    EXPECT_TRUE(block(60 * second));
    EXPECT_FALSE(block_of(refused, 60 * second)) << "as what it was refused for was returned";
    now_ += second;
    lift(counted);
    now_ += 60 * second;
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 0 }) << "neither rests on anything";
}

TEST_P(BlockTrace, no_block_begins_while_a_key_counts_what_no_request_used)
{
    begin({ GetParam(), { 2, microseconds{ day } }, {}, {}, seconds{ 100 } });
    EXPECT_TRUE(block());
    now_ += second;
    const Time counted = now_;
    now_ += second;
    lift(counted, 200 * second);
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 98 }) << "that began before";
    now_ += 98 * second;
    EXPECT_FALSE(block());
    lift(now_);
    now_ += 102 * second;
    EXPECT_FALSE(block()) << "a shorter time changes nothing";
    now_ += 1;
    EXPECT_TRUE(block());
    EXPECT_FALSE(block_of(now_ - 1, 0)) << "an earlier refusal";
    now_ += second;
    caller_.state_block(block_, request(1), { -2 * seconds{ 1 }, seconds{ 1 }, {}, seconds{ 10 } });
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 0 }) << "which began two seconds ago at most";
}

TEST_P(BlockTrace, a_block_that_began_since_does_not_refuse_a_call_that_is_sent_again)
{
    const std::string several = caller_.load(several_script({ { GetParam() } }));
    const auto ask = [&](std::int64_t requests, Time age) {
        const LimitCheck check = request(1);
        std::vector<std::int64_t> runs{ requests, 1 };
        if (age > 0) {
            runs.push_back(age);
        }
        const auto states = caller_.check_runs(several, { &check, 1 }, runs);
        return std::count_if(states.begin(), states.end(), [](const auto& request) {
            return request.front().granted;
        });
    };
    const Policy policy{ GetParam(), { 2, microseconds{ day } }, {}, {}, seconds{ 100 } };
    const auto most = policy.limit();
    const auto begin_and_block = [&] {
        begin(policy);
        EXPECT_EQ(ask(most, 0), most) << "its reply is lost";
        now_ += second;
        EXPECT_EQ(ask(1, 0), 0);
        EXPECT_TRUE(block()) << "of another node's request";
        now_ += second;
    };

    begin_and_block();
    EXPECT_EQ(ask(most, second - 1), 0) << "it was sent after the refusal";
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 99 });
    EXPECT_EQ(ask(most, 2 * second), most);
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 0 });
    EXPECT_FALSE(block()) << "what it counted may be counted twice";

    begin_and_block();
    charge(1);
    EXPECT_EQ(ask(1, 2 * second), 0) << "refused without its own units, too";
    EXPECT_EQ(by_script(request(1)).blocked, seconds{ 0 });
    EXPECT_FALSE(block()) << "no request uses them";
}

INSTANTIATE_TEST_SUITE_P(Algorithms, BlockTrace, testing::ValuesIn(rate_algorithms), by_name);

TEST(LocalBlock, is_kept_beside_the_counts_of_all_records_and_can_be_freed)
{
    TestZone zone;
    const Policy policy{
        Algorithm::sliding_window_log, { 1, std::chrono::hours{ 24 } }, {}, {}, seconds{ 100 }
    };
    const auto decide = [&](std::string_view name, microseconds now = start) {
        return zone.decide({ name, policy }, now);
    };
    const auto block = [&](std::string_view name) {
        return zone.memory().local_limiter().begin_block({ name, policy }, { start, start, start })
            == LocalLimiter::Block::began;
    };
    EXPECT_TRUE(decide("a").granted && decide("b").granted);
    EXPECT_FALSE(decide("a").granted);
    EXPECT_TRUE(block("a"));
    EXPECT_EQ(decide("a").blocked, seconds{ 100 });
    EXPECT_EQ(zone.decide({ "a", policy, 1, 60 }, start).blocked, seconds{ 100 });
    EXPECT_EQ(decide("b").blocked, seconds{ 0 });
    Policy overridden = policy;
    overridden.override_record = 1U << 29U;
    EXPECT_EQ(zone.decide({ "a", overridden }, start).blocked, seconds{ 0 }) << "of an override";
    zone.memory().forget_key("a");
    EXPECT_TRUE(decide("a").granted);
    EXPECT_TRUE(block("a"));
    EXPECT_FALSE(decide("a", start + seconds{ 100 }).granted) << "its request is still counted";
    EXPECT_EQ(decide("a", start + seconds{ 100 }).blocked, seconds{ 0 });
}

}  // namespace
}  // namespace ratelimit
