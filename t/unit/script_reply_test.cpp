// What is read of the replies of scripts, and what is rejected.

#include "check/script_call.h"
#include "check/script_reply.h"
#include "reply_bytes.h"
#include "trace_caller.h"

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

redisReply reply_of(std::string& text, int type = REDIS_REPLY_STRING)
{
    redisReply reply{};
    reply.type = type;
    reply.str = text.data();
    reply.len = text.size();
    return reply;
}

/// Its answers have all numbers.
const LimitCheck counted{ "key", { Algorithm::fixed_window, { 9, 60s }, {}, {} }, 1, false, {} };

/// One run.
bool read_several(const redisReply& reply, std::size_t limits, std::vector<KeyReply>& replies)
{
    return read_several_reply(reply, std::vector(limits, counted), 1, replies);
}

bool reads(const std::string& text, Verdict& state)
{
    KeyReply reply;
    const bool good = read_sequence_reply(to_one_call(text), counted.policy, 1, reply);
    state = verdict_of(reply);
    return good;
}

bool reads(std::string text, std::size_t answers, int type = REDIS_REPLY_STRING)
{
    std::vector<KeyReply> replies;
    return read_several(reply_of(text, type), answers, replies);
}

TEST(ScriptReply, of_one_limit_has_six_numbers)
{
    Verdict state;
    ASSERT_TRUE(reads(doubles({ 1, 4, 5'000'000, 0, 0, 0 }), state));
    EXPECT_EQ(state, (Verdict{ true, 4, 5s, 0us }));
    ASSERT_TRUE(reads(doubles({ 0, 0, 7, -1, 0, 0 }), state));
    EXPECT_EQ(state, (Verdict{ false, 0, 7us, std::nullopt }));
}

TEST(ScriptReply, of_one_limit_has_the_reset_before_and_the_time)
{
    KeyReply reply;
    ASSERT_TRUE(read_sequence_reply(
        to_one_call(doubles({ 1, 4, 5'000'000, 0, 7, 1'800'000'000'000'000 })), counted.policy, 1,
        reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 4, 5s, 0us }));
    EXPECT_EQ(reply.reset_before, 7us);
    EXPECT_EQ(reply.server_time, 1'800'000'000s);
    EXPECT_FALSE(
        read_sequence_reply(to_one_call(doubles({ 1, 4, 5, 0, -7, 8 })), counted.policy, 1, reply));
    EXPECT_FALSE(
        read_sequence_reply(to_one_call(doubles({ 1, 4, 5, 0, 7, -8 })), counted.policy, 1, reply));
    EXPECT_FALSE(read_sequence_reply(
        to_one_call(doubles({ 1, 4, 5, 0, 7, 9'000'000'000'000'000 })), counted.policy, 1, reply))
        << "the year 2255";
    EXPECT_FALSE(
        read_sequence_reply(to_one_call(doubles({ 1, 4, 5, 0, 7 })), counted.policy, 1, reply));
}

TEST(ScriptReply, of_several_limits_has_seven_numbers_for_each_and_the_time)
{
    auto text =
        doubles({ 3, 9, 1, 4, 5'000'000, 0, 6, 0, 0, 0, 2, 7, -1, 0, 1'800'000'000'000'000 });
    const auto reply = reply_of(text);
    std::vector<KeyReply> several;
    ASSERT_TRUE(read_several(reply, 2, several));
    const RunReply& first = several[0];
    const RunReply& second = several[1];
    EXPECT_EQ(first, (RunReply{ 3, true, false, 0us, 4, 5s, 0us, 9, 6us }));
    EXPECT_EQ(second, (RunReply{ 0, false, false, 0us, 2, 7us, std::nullopt, 0, 0us }));
    for (const KeyReply& each : several) {
        EXPECT_EQ(each.server_time, 1'800'000'000s);
    }
}

TEST(ScriptReply, of_a_request_is_the_same_from_both_scripts)
{
    struct Limit {
        bool shadow;
        Policy policy = counted.policy;
    };
    const auto cost = [](std::size_t) { return 1; };
    const auto taken = [&cost](bool shadow, double first, double second) {
        const std::array limits{ Limit{ false }, Limit{ shadow } };
        std::vector<KeyReply> replies;
        EXPECT_TRUE(read_sequence_replies(
            to_one_call(doubles({ first, 4, 5, 0, 6, second, 4, 5, 0, 7, 8 })), limits, cost,
            replies));
        return std::pair(replies[0].taken, replies[1].taken);
    };
    EXPECT_EQ(taken(false, 1, 1), std::pair(1L, 1L));
    EXPECT_EQ(taken(false, 1, 0), std::pair(0L, 0L)) << "in all limits or in none";
    EXPECT_EQ(taken(true, 1, 0), std::pair(1L, 0L)) << "a shadow refuses no request";
    EXPECT_EQ(taken(true, 0, 1), std::pair(0L, 0L));

    std::vector<KeyReply> replies;
    const std::array one{ Limit{ false } };
    ASSERT_TRUE(
        read_sequence_replies(to_one_call(doubles({ 1, 4, 5, 0, 6, 8 })), one, cost, replies));
    const RunReply in_sequence = replies.front();
    auto text = doubles({ 1, 0, 1, 4, 5, 0, 6, 8 });
    ASSERT_TRUE(read_several(reply_of(text), 1, replies));
    const RunReply& in_several = replies.front();
    EXPECT_EQ(in_several, in_sequence);
}

TEST(ScriptReply, of_a_debt_has_one_number_and_the_time)
{
    const LimitCheck check{
        "key", { Algorithm::gcra, { 3, 10s }, 4, {} }, 1, false, {}
    };  // five at once
    KeyReply reply;
    // In thirds of a microsecond; each request adds ten seconds.
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ 20'000'001, 8 })), check.policy, 2, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 2, 6'666'667us, 0us }));
    EXPECT_EQ(reply.reset_before, 1us);
    EXPECT_EQ(reply.server_time, 8us);
    EXPECT_EQ(reply.taken, 1);
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ -1 - 45'000'001., 8 })), check.policy, 1, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ false, 0, 15'000'001us, 1'666'667us }));
    EXPECT_EQ(reply.taken, 0);
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ -1, 8 })), check.policy, 6, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ false, 5, 0us, std::nullopt })) << "never";
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ 0, 8 })), check.policy, 0, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 5, 0us, 0us }));
    for (const double wrong : { std::nan(""), 1e300, -1e300, 0x1p119 }) {
        EXPECT_FALSE(
            read_sequence_reply(to_one_call(doubles({ wrong, 8 })), check.policy, 1, reply))
            << wrong;
    }
    EXPECT_FALSE(read_sequence_reply(to_one_call(doubles({ 8 })), check.policy, 1, reply));
    EXPECT_FALSE(read_sequence_reply(to_one_call(doubles({ 1, 2, 8 })), check.policy, 1, reply));
}

TEST(ScriptReply, of_a_debt_beyond_exact_numbers_is_as_the_script_computes_it)
{
    const LimitCheck check{
        "key", { Algorithm::gcra, { 1'000'000'000, 1h }, 1'000'000'000, {} }, 1, false, {}
    };
    KeyReply reply;
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ 3.6e18, 8 })), check.policy, 1, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 1, 1h, 0us }));
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ -3.7e18, 8 })), check.policy, 1, reply));
    EXPECT_FALSE(reply.admits_next);
    EXPECT_EQ(reply.remaining, 0);
    EXPECT_EQ(reply.reset, 3'700s);
    EXPECT_NEAR(static_cast<double>(reply.retry_after->count()), 100e6, 10);
}

/// However large it is, and however slow the rate: it is a refusal, and no malformed reply.
TEST(ScriptReply, of_a_cost_above_the_limit_is_a_refusal)
{
    const LimitCheck check{
        "key",
        { Algorithm::token_bucket, { 1, std::chrono::hours{ 24 * 365 } }, {}, {} },
        1,
        false,
        {}
    };
    KeyReply reply;
    for (const std::int64_t cost : { std::int64_t{ 2 }, std::int64_t{ 1'000'000'000 } }) {
        for (const double debt : { 0., 3.1536e13 }) {
            ASSERT_TRUE(read_sequence_reply(
                to_one_call(doubles({ -1 - debt, 8 })), check.policy, cost, reply));
            EXPECT_EQ(
                verdict_of(reply),
                (Verdict{ false, debt == 0 ? 1 : 0, microseconds{ static_cast<std::int64_t>(debt) },
                          std::nullopt }));
        }
    }
}

TEST(ScriptReply, of_a_holder_has_the_units_and_its_place)
{
    const LimitCheck check{ "key", { Algorithm::concurrency, { 5, 60s }, {}, {} }, 1, false, {} };
    KeyReply reply;
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ 2, 3, 8 })), check.policy, 1, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 3, 1s, 0us }));
    EXPECT_EQ(reply.place, 3);
    EXPECT_EQ(reply.taken, 1);
    EXPECT_EQ(reply.server_time, 8us);
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ 0, 0, 8 })), check.policy, 0, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 5, 0us, 0us }));
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ -1 - 7., 1, 8 })), check.policy, 1, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ false, 0, 1s, 1s })) << "more than a new limit";
    EXPECT_FALSE(reply.ignored);
    EXPECT_EQ(reply.taken, 0);
    ASSERT_TRUE(read_sequence_reply(to_one_call(doubles({ -1, 0, 8 })), check.policy, 6, reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ false, 5, 0us, std::nullopt })) << "never";
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ -1 - 2., -1, 8 })), check.policy, 1, reply));
    EXPECT_TRUE(reply.ignored);
    for (const double wrong : { std::nan(""), 1e300, -1e300 }) {
        EXPECT_FALSE(
            read_sequence_reply(to_one_call(doubles({ wrong, 0, 8 })), check.policy, 1, reply));
        EXPECT_FALSE(
            read_sequence_reply(to_one_call(doubles({ 0, wrong, 8 })), check.policy, 1, reply));
    }
    EXPECT_FALSE(read_sequence_reply(to_one_call(doubles({ 0, -2, 8 })), check.policy, 1, reply));
    EXPECT_FALSE(read_sequence_reply(to_one_call(doubles({ 1, 8 })), check.policy, 1, reply));
}

TEST(ScriptReply, of_a_holder_has_its_place_if_the_script_knows_it)
{
    std::vector<KeyReply> replies;
    auto text = doubles({ 1, 0, 1, 4, 5, 0, 3, 8 });
    ASSERT_TRUE(read_several(reply_of(text), 1, replies));
    EXPECT_EQ(replies.front().place, 3);
    text = doubles({ 0, 0, 0, 4, 5, 1, 0, 8 });
    ASSERT_TRUE(read_several(reply_of(text), 1, replies));
    EXPECT_EQ(replies.front().place, -1) << "several.lua says 0 if nothing was counted";
}

TEST(ScriptReply, says_what_is_left_of_a_block_beside_the_counts)
{
    KeyReply reply;
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ 28, 3, 5, 0, 0, 0 })), counted.policy, 1, reply));
    EXPECT_EQ(reply.blocked, 7us);
    EXPECT_EQ(verdict_of(reply), (Verdict{ false, 3, 5us, 0us })) << "admitted by the counts";
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ 29, 3, 5, 0, 0, 0 })), counted.policy, 1, reply));
    EXPECT_EQ(reply.blocked, 7us) << "a request of cost 0";
    EXPECT_TRUE(reply.admits_next);
    EXPECT_FALSE(reply.spared);
    ASSERT_TRUE(
        read_sequence_reply(to_one_call(doubles({ 2, 0, 5, 9, 0, 0 })), counted.policy, 1, reply));
    EXPECT_EQ(reply.blocked, 0us);
    EXPECT_TRUE(reply.spared);
}

TEST(Verdict, of_a_blocked_key_waits_for_the_block_and_the_counts)
{
    const auto with = [](Verdict state, microseconds rest) {
        apply_block(state, rest);
        return state;
    };
    EXPECT_EQ(with({ false, 3, 5s, 0us }, 9s), (Verdict{ false, 0, 9s, 9s, 9s }));
    EXPECT_EQ(with({ false, 3, 50s, 20s }, 9s), (Verdict{ false, 0, 50s, 20s, 9s }));
    EXPECT_EQ(
        with({ false, 3, 5s, std::nullopt }, 9s), (Verdict{ false, 0, 9s, std::nullopt, 9s }));
    EXPECT_EQ(with({ true, 3, 5s, 0us }, 9s), (Verdict{ true, 0, 9s, 0us, 9s }));
    EXPECT_EQ(with({ false, 3, 5s, 1s }, 0s), (Verdict{ false, 3, 5s, 1s }));
}

TEST(ScriptReply, of_another_shape_is_rejected)
{
    Verdict one;
    EXPECT_FALSE(reads("", one));
    EXPECT_FALSE(reads(doubles({ 1, 4, 5 }), one));
    EXPECT_FALSE(reads(doubles({ 1, 4, 5, 0, 0, 0, 1, 4, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ -1, 4, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ 1, -4, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ 1, 4, -5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ 1, 4, 5, -3, 0, 0 }), one));
    constexpr double next_double = 0x1p58 + 64;
    EXPECT_FALSE(reads(doubles({ 1, next_double, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ 1, 4, next_double, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ 0, 4, 5, next_double, 0, 0 }), one));
    EXPECT_FALSE(reads(doubles({ std::nan(""), 4, 5, 0, 0, 0 }), one));

    const std::size_t answers = 1;
    EXPECT_TRUE(reads(doubles({ 1, 0, 1, 4, 5, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads("", answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, 4, 5, 0, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, 4, 5, 0, 0, 8, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ -1, 0, 1, 4, 5, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, -5, 4, 5, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, -4, 5, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, 4, -5, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, 4, 5, -3, 6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, next_double, 5, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, -1, 1, 4, 5, 0, 0, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, 4, 5, 0, -6, 8 }), answers));
    EXPECT_FALSE(reads(doubles({ 1, 0, 1, 4, 5, 0, 6, 8 }), answers, REDIS_REPLY_ERROR));
}

TEST(ScriptReply, leaves_no_more_than_the_limit)
{
    KeyReply reply;
    for (const double granted : { 0, 1 }) {
        ASSERT_TRUE(read_sequence_reply(
            to_one_call(doubles({ granted, 10, 5, 0, 0, 0 })), counted.policy, 1, reply));
        EXPECT_EQ(reply.remaining, 9);
    }
    ASSERT_TRUE(
        read_whole_reply(to_one_call(doubles({ 1, 0x1p58, 5, 0, 0, 0 })), counted.policy, reply));
    EXPECT_EQ(reply.remaining, 9);
    LimitCheck fewer = counted;
    fewer.policy.reserve = 2;
    const std::array limits{ counted, fewer };
    auto text = doubles({ 1, 0, 1, 10, 5, 0, 6, 1, 0, 1, 10, 5, 0, 6,  // a run
                          0, 0, 0, 10, 5, 0, 6, 0, 0, 0, 10, 5, 0, 6, 8 });
    std::vector<KeyReply> replies;
    ASSERT_TRUE(read_several_reply(reply_of(text), limits, 2, replies));
    for (std::size_t i = 0; i < replies.size(); ++i) {
        EXPECT_EQ(replies[i].remaining, i % 2 == 0 ? 9 : 7) << i;
    }
}

TEST(ScriptReply, that_takes_more_than_was_asked_for_does_not_fit)
{
    Runs runs;
    runs.begin(1);
    for (const std::int64_t cost : { 5, 5, 7 }) {  // two requests, and one
        runs.add([cost](std::size_t) { return cost; });
    }
    const auto fits = [&runs](double first, double second) {
        auto text = doubles({ first, 0, 1, 4, 5, 0, 6, second, 0, 1, 4, 5, 0, 6, 8 });
        const auto reply = reply_of(text);
        std::vector<KeyReply> replies;
        return read_several_reply(reply, std::span(&counted, 1), 2, replies)
            && ratelimit::fits(replies, runs);
    };
    EXPECT_TRUE(fits(2, 1));
    EXPECT_FALSE(fits(3, 1));
    EXPECT_FALSE(fits(2, 2));
    runs.lease(10);
    EXPECT_TRUE(fits(2, 11));
    EXPECT_FALSE(fits(2, 12));
    EXPECT_FALSE(fits(2, INT64_MAX));
}

}  // namespace
}  // namespace ratelimit
