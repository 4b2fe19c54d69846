// What scripts do in cases that random traces reach seldom.

#include "check/script_text.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <array>
#include <span>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using std::chrono::days;
using std::chrono::milliseconds;
using std::chrono::seconds;

class ScriptEdges : public testing::Test {
protected:
    static constexpr microseconds now{ start_of_traces };

    static Policy policy_of(Algorithm algorithm, std::int64_t quota, microseconds window)
    {
        return { algorithm, { quota, window }, {}, {} };
    }
    LimitCheck request(const Policy& policy, std::int64_t cost) const
    {
        return { "rl:test:{k}", policy, cost, false, now };
    }
    Verdict check(const LimitCheck& check)
    {
        const auto script = caller_.load(single_script(check.policy.algorithm));
        const auto answer = caller_.check(script, { &check, 1 });
        return answer.states.empty() ? Verdict{} : answer.states.front();
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    const std::string refund_ = caller_.load(refund_script());
};

TEST_F(ScriptEdges, a_bucket_that_has_less_than_the_refund_keeps_it)
{
    const Policy policy = policy_of(Algorithm::sliding_window_buckets, 10, seconds{ 60 });
    LimitCheck earlier = request(policy, 5);
    earlier.now = now - seconds{ 5 };
    check(earlier);
    const Verdict counted = check(request(policy, 1));
    caller_.refund(refund_, { request(policy, 2), counted }, 2, now);
    EXPECT_EQ(check(request(policy, 0)).remaining, 4);
    caller_.refund(refund_, { request(policy, 1), counted }, 1, now);
    EXPECT_EQ(check(request(policy, 0)).remaining, 5);
}

TEST_F(ScriptEdges, a_refund_takes_nothing_from_a_window_of_another_length)
{
    const Policy other = policy_of(Algorithm::fixed_window, 10, seconds{ 20 });
    const Policy policy = policy_of(Algorithm::fixed_window, 10, seconds{ 10 });
    const Verdict counted = check(request(policy, 3));
    caller_.refund(refund_, { request(other, 2), counted }, 2, now);
    EXPECT_EQ(check(request(policy, 0)).remaining, 7);
    caller_.refund(refund_, { request(policy, 2), counted }, 2, now);
    EXPECT_EQ(check(request(policy, 0)).remaining, 9);
}

TEST_F(ScriptEdges, a_limit_that_an_earlier_try_may_have_filled_does_not_refuse_the_call_again)
{
    const LimitCheck full = request(policy_of(Algorithm::fixed_window, 1, seconds{ 60 }), 1);
    check(full);
    LimitCheck held = request(policy_of(Algorithm::concurrency, 1, seconds{ 60 }), 0);
    held.redis_key = "rl:test:{k}:held";
    const Statement other{ 1, now.count(), 1, -1, seconds{ 1 } };
    held.states = &other;
    check(held);
    const Statement own{ 2, now.count(), 0, -1, seconds{ 1 } };
    held.states = &own;
    held.cost = 1;

    const std::array algorithms{ full.policy.algorithm, held.policy.algorithm };
    const std::array limits{ full, held };
    const std::array<std::int64_t, 4> sent_a_second_ago{ 1, 1, 1, 1'000'000 };
    const auto verdicts =
        caller_.check_runs(caller_.load(several_script(algorithms)), limits, sent_a_second_ago);
    ASSERT_EQ(verdicts.size(), 1U);
    EXPECT_TRUE(verdicts[0][0].granted);
    EXPECT_FALSE(verdicts[0][1].granted);
}

TEST_F(ScriptEdges, a_full_bucket_has_all_its_tokens_however_many_these_are)
{
    const Policy policy = policy_of(Algorithm::token_bucket, 18'719'000, days{ 365 });
    const LimitCheck nothing = request(policy, 0);
    EXPECT_EQ(check(nothing).remaining, policy.limit());
    const std::array<std::int64_t, 2> one_run{ 1, 0 };
    const std::array algorithms{ policy.algorithm };
    const auto verdicts = caller_.check_runs(
        caller_.load(several_script(algorithms)), std::span(&nothing, 1), one_run);
    EXPECT_EQ(verdicts.at(0).at(0).remaining, policy.limit());
}

TEST_F(ScriptEdges, buckets_that_are_never_idle_count_beyond_the_range_of_their_total)
{
    constexpr std::int64_t half = 500'000'000'000;
    Policy policy = policy_of(Algorithm::sliding_window_buckets, 2 * half, seconds{ 1 });
    policy.precision = seconds{ 1 };
    LimitCheck one = request(policy, 1);
    LimitCheck rest = request(policy, half - 1);
    for (std::int64_t i = 1; i * half < std::int64_t{ 1 } << 49; ++i) {
        one.now = now + seconds{ i };
        rest.now = one.now;
        check(one);
        const Verdict counted = check(rest);
        ASSERT_TRUE(counted.granted) << i;
        caller_.refund(refund_, { rest, counted }, rest.cost, *rest.now);
        const std::int64_t before = i == 1 ? half : 0;
        const Verdict again = check(rest);
        ASSERT_TRUE(again.granted) << i;
        ASSERT_EQ(again.remaining, before) << i;
        if (before == 0) {
            ASSERT_EQ(check(one).retry_after, seconds{ 1 }) << i;
        }
    }
}

class ExpiryOfArrivalTime : public ScriptEdges {
protected:
    using Life = TraceCaller::Life;

    ExpiryOfArrivalTime() { policy_.burst = 10; }
    /// What becomes of the key's expiry if Redis's clock shows this.
    Life after(microseconds clock)
    {
        const auto script = caller_.load_with_clock(single_script(Algorithm::gcra));
        LimitCheck of = request(policy_, 1);
        of.now = clock;
        return caller_.check_by_redis_clock(script, of).lives.front().life;
    }
    /// The same, with clock=local.
    Life after_local(microseconds clock)
    {
        const auto script = caller_.load(single_script(Algorithm::gcra));
        LimitCheck of = request(policy_, 1);
        of.now = clock;
        return caller_.check(script, { &of, 1 }).lives.front().life;
    }

    Policy policy_ = policy_of(Algorithm::gcra, 1000, seconds{ 1 });
};

TEST_F(ExpiryOfArrivalTime, is_kept_while_it_is_of_the_same_second)
{
    EXPECT_EQ(after(now), Life::given);
    EXPECT_EQ(after(now), Life::kept);
}

TEST_F(ExpiryOfArrivalTime, is_given_again_after_a_step_back_of_the_clock)
{
    policy_.rate.window = milliseconds{ 100 };
    after(now + milliseconds{ 500 });
    EXPECT_EQ(after(now + milliseconds{ 300 }), Life::given);
}

TEST_F(ExpiryOfArrivalTime, is_given_again_by_another_clock)
{
    after(now);
    EXPECT_EQ(after_local(now), Life::given);
}

}  // namespace
}  // namespace ratelimit
