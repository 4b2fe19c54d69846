// The RateLimit headers: their text; and what they promise, against the model, over random traces.

#include "limit/rate_headers.h"
#include "trace_maker.h"

#include <array>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using Time = Model::Time;

template <class Write>
std::string written(std::span<const HeaderMember> members, Write&& write)
{
    std::string room(header_room(members), '\0');
    const auto value = write(members, room.data());
    EXPECT_LE(value.size(), room.size());
    return std::string(value);
}

std::string policy_of(Algorithm algorithm, Rate rate, std::optional<std::int64_t> burst = {})
{
    const std::array members = { HeaderMember{ "z", { algorithm, rate, burst, {} }, {}, {} } };
    return written(members, policy_header);
}

TEST(RateHeaders, round_times_up_to_whole_seconds)
{
    EXPECT_EQ(whole_seconds(0us), 0);
    EXPECT_EQ(whole_seconds(1us), 1);
    EXPECT_EQ(whole_seconds(1s), 1);
    EXPECT_EQ(whole_seconds(1s + 1us), 2);
    EXPECT_EQ(retry_after_seconds(0us), 1);
    EXPECT_EQ(retry_after_seconds(1s + 1us), 2);
}

TEST(RateHeaders, are_structured_field_lists_with_a_member_for_each_limit)
{
    const Policy fixed{ Algorithm::fixed_window, { 100, 60s }, {}, {} };
    const Policy bucket{ Algorithm::token_bucket, { 5, 10s }, {}, {} };
    const std::array members = {
        HeaderMember{ "per_ip", fixed, {}, Verdict{ true, 50, 30s - 1us } },
        HeaderMember{ "per\"key\\", bucket, {}, Verdict{ false, 0, 10s, 1500ms } },
    };
    EXPECT_EQ(written(members, policy_header), R"("per_ip";q=100;w=60, "per\"key\\";q=5;w=10)");
    EXPECT_EQ(written(members, state_header), R"("per_ip";r=50;t=30, "per\"key\\";r=0;t=2)");
    EXPECT_EQ(written({}, policy_header), "");
    EXPECT_EQ(written({}, state_header), "");
}

TEST(RateHeaders, name_the_policy_of_a_limit_that_was_not_decided_but_no_state)
{
    const Policy policy{ Algorithm::fixed_window, { 7, 60s }, {}, {} };
    const std::array members = {
        HeaderMember{ "one", policy, {}, {} },
        HeaderMember{ "two", policy, {}, Verdict{ true, 7, 1s } },
        HeaderMember{ "three", policy, {}, {} },
    };
    EXPECT_EQ(
        written(members, policy_header), R"("one";q=7;w=60, "two";q=7;w=60, "three";q=7;w=60)");
    EXPECT_EQ(written(members, state_header), R"("two";r=7;t=60)");
    EXPECT_EQ(written(std::span(members).first(1), state_header), "");
}

TEST(RateHeaders, name_a_unit_that_is_not_requests)
{
    const Policy policy{ Algorithm::fixed_window, { 7, 60s }, {}, {} };
    const std::array members = {
        HeaderMember{ "b", policy, QuotaUnit::content_bytes, {} },
        HeaderMember{ "c", policy, QuotaUnit::concurrent_requests, {} },
    };
    EXPECT_EQ(
        written(members, policy_header),
        R"("b";q=7;qu="content-bytes";w=60, "c";q=7;qu="concurrent-requests";w=60)");
}

TEST(RateHeaders, name_the_most_that_can_remain_and_the_time_in_which_it_comes)
{
    for (const auto algorithm : { Algorithm::fixed_window, Algorithm::sliding_window_counter,
                                  Algorithm::sliding_window_log, Algorithm::sliding_window_buckets,
                                  Algorithm::token_bucket }) {
        EXPECT_EQ(policy_of(algorithm, { 10, 60s }), R"("z";q=10;w=60)");
        EXPECT_EQ(policy_of(algorithm, { 7, 3s }), R"("z";q=7;w=3)");
    }
    EXPECT_EQ(policy_of(Algorithm::token_bucket, { 10, 60s }, 25), R"("z";q=25;w=150)");
    for (const auto algorithm : { Algorithm::leaky_bucket, Algorithm::gcra }) {
        EXPECT_EQ(policy_of(algorithm, { 10, 60s }), R"("z";q=1;w=6)");
        EXPECT_EQ(policy_of(algorithm, { 10, 60s }, 4), R"("z";q=5;w=30)");
    }
}

TEST(RateHeaders, name_the_rate_and_the_burst_where_that_time_is_no_whole_number_of_seconds)
{
    EXPECT_EQ(policy_of(Algorithm::gcra, { 100, 1s }), R"("z";q=100;w=1)");
    EXPECT_EQ(policy_of(Algorithm::gcra, { 100, 1s }, 20), R"("z";q=100;w=1;ratelimit-burst=20)");
    EXPECT_EQ(policy_of(Algorithm::gcra, { 100, 1s }, 99), R"("z";q=100;w=1)");
    EXPECT_EQ(
        policy_of(Algorithm::leaky_bucket, { 3, 10s }, 1), R"("z";q=3;w=10;ratelimit-burst=1)");
    EXPECT_EQ(
        policy_of(Algorithm::token_bucket, { 3, 10s }, 7), R"("z";q=3;w=10;ratelimit-burst=7)");
}

TEST(RateHeaders, have_integers_of_at_most_15_digits)
{
    constexpr std::int64_t most = 1'000'000'000;
    for (const auto algorithm : all_algorithms) {
        for (const Rate rate : { Rate{ 1, 366 * 24h }, Rate{ most, 366 * 24h }, Rate{ 1, 1s } }) {
            const Policy policy{ algorithm, rate, most, {} };
            const QuotaPolicy shown = quota_policy(policy);
            EXPECT_LT(shown.quota, 1'000'000'000'000'000);
            EXPECT_LT(shown.window_s, 1'000'000'000'000'000);
            const Verdict full{ true, policy.limit(), 0us };
            EXPECT_LT(whole_seconds(effective_window(policy, full)), 1'000'000'000'000'000);
        }
    }
}

TEST(RateHeaders, of_a_blocked_key_say_when_something_remains_again)
{
    // A request of a cost above the limit, which has no retry time, or of cost 0.
    const auto window = [](const Policy& policy, std::int64_t left, microseconds reset) {
        Verdict state{ false, left, reset, std::nullopt };
        apply_block(state, 10s);
        return effective_window(policy, state);
    };
    const Policy fixed{ Algorithm::fixed_window, { 2, 60s }, {}, {} };
    EXPECT_EQ(window(fixed, 0, 25s), 25s) << "the block ends before the window";
    EXPECT_EQ(window(fixed, 0, 5s), 10s);
    EXPECT_EQ(window(fixed, 1, 25s), 10s) << "something is left behind the block";
    const Policy bucket{ Algorithm::token_bucket, { 1, 30s }, 2, {} };
    EXPECT_EQ(window(bucket, 0, 50s), 20s) << "a token every 30 s, and two in 50 s";
    EXPECT_EQ(window(bucket, 0, 35s), 10s);
    EXPECT_EQ(window(bucket, 1, 25s), 10s);
    EXPECT_EQ(effective_window(fixed, blocked(0, 10s)), 10s) << "its counts are not known";
}

/// A client that reads what a random trace has left, and goes on by it.
class EffectiveWindow : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    static constexpr int traces = 300;
    static constexpr std::int64_t most_requests = 200;

    /// The last answer of a trace in which time runs forwards.
    Verdict play(int steps)
    {
        Verdict last;
        for (int step = 0; step <= steps; ++step) {
            if (step > 0) {
                now_ += std::max<Time>(0, any_later(policy_, now_, last) - now_);
            }
            last = decide(any_cost(policy_));
        }
        return last;
    }
    Verdict decide(std::int64_t cost) { return model_->decide(policy_, now_, cost).state; }
    /// After each of many traces, calls `go_on` with the last answer.
    template <class GoOn>
    void after_traces(GoOn&& go_on)
    {
        for (int trace = 0; trace < traces; ++trace) {
            model_ = Model::of(GetParam());
            policy_ = any_policy(GetParam());
            now_ = start_of_traces + any(0, day);
            const Verdict state = play(static_cast<int>(any(0, 30)));
            SCOPED_TRACE(where(trace, 0, { "", policy_, 1, false, microseconds{ now_ } }));
            if (state.granted) {
                go_on(state);
            }
        }
    }
    Time shown_window(const Verdict& state) const
    {
        return whole_seconds(effective_window(policy_, state)) * second;
    }
    std::unique_ptr<Model> model_;
    Policy policy_;
    Time now_ = 0;
};

TEST_P(EffectiveWindow, a_client_that_spreads_what_remains_over_it_is_never_refused)
{
    after_traces([this](const Verdict& state) {
        const Time window = shown_window(state);
        const Time start = now_;
        // Beyond the promise it can keep its pace; by the counter, unless at that pace a request
        // comes in the very microsecond in which a window begins, and by buckets, in which requests
        // count for longer than a window.
        const bool promise_only = GetParam() == Algorithm::sliding_window_counter
            || GetParam() == Algorithm::sliding_window_buckets;
        const int windows = promise_only ? 1 : 2;
        const auto requests = std::min(windows * state.remaining, most_requests);
        for (std::int64_t i = 0; i < requests; ++i) {
            now_ = start + static_cast<Time>(static_cast<__int128>(window) * i / state.remaining);
            ASSERT_TRUE(decide(1).granted) << i << " of " << state.remaining << " in " << window;
        }
    });
}

TEST_P(EffectiveWindow, what_remains_over_it_is_never_above_the_rate_nor_is_it_longer_than_needed)
{
    after_traces([this](const Verdict& state) {
        if (state.remaining == 0) {
            return;
        }
        const auto at_the_rate =
            static_cast<__int128>(state.remaining) * policy_.rate.window.count();  // in 1/quota us
        const __int128 window = shown_window(state);
        EXPECT_GE(window * policy_.rate.quota, at_the_rate);
        if (keeps_arrival_time(GetParam())) {
            EXPECT_LT((window - second) * policy_.rate.quota, at_the_rate);
        } else {
            EXPECT_LE(window, whole_seconds(policy_.counted_for()) * second);
        }
    });
}

TEST_P(EffectiveWindow, after_it_a_request_passes_where_nothing_remained)
{
    after_traces([this](const Verdict& state) {
        if (state.remaining == 0) {
            EXPECT_GT(shown_window(state), 0);
            now_ += shown_window(state);
            EXPECT_TRUE(decide(1).granted);
        }
    });
}

TEST_P(EffectiveWindow, of_a_refusal_is_its_retry_time)
{
    const Policy policy{ GetParam(), { 10, 60s }, 9, {} };
    EXPECT_EQ(effective_window(policy, Verdict{ false, 3, 50s, 20s }), 20s);
    // A cost that never fits has no such time.
    EXPECT_GT(effective_window(policy, Verdict{ false, 3, 50s, std::nullopt }), 0s);
}

TEST(RetryJitter, spreads_a_herd_upwards_and_no_further_than_its_share)
{
    constexpr int clients = 10'000;
    constexpr std::uint32_t end = 1U << 31U;
    std::map<std::int64_t, int> without;
    std::map<std::int64_t, int> with;
    for (std::uint32_t i = 0; i < clients; ++i) {
        ++without[spread(60, 0, end / clients * i)];
        ++with[spread(60, 10, end / clients * i)];
    }
    EXPECT_EQ(without, (std::map<std::int64_t, int>{ { 60, clients } }));
    ASSERT_EQ(with.size(), 7U);
    for (const auto& [seconds, count] : with) {
        EXPECT_TRUE(seconds >= 60 && seconds <= 66) << seconds;
        EXPECT_NEAR(count, clients / 7, 2) << seconds;
    }
}

TEST(RetryJitter, of_a_share_of_less_than_a_second_moves_few_clients)
{
    constexpr std::uint32_t end = 1U << 31U;
    EXPECT_EQ(spread(1, 10, end / 11 * 10 - 11), 1);
    EXPECT_EQ(spread(1, 10, end / 11 * 10 + 11), 2) << "one of eleven";
    EXPECT_EQ(spread(1, 10, end - 1), 2);
    EXPECT_EQ(spread(316'224'000, 100, end - 1), 632'448'000) << "ten years";
}

INSTANTIATE_TEST_SUITE_P(Algorithms, EffectiveWindow, testing::ValuesIn(rate_algorithms), by_name);

}  // namespace
}  // namespace ratelimit
