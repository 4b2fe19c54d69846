#include "all_algorithms.h"
#include "check/script_call.h"
#include "check/script_reply.h"
#include "check/script_text.h"
#include "check/sequence_scripts.h"
#include "redis/script_registry.h"
#include "redis_server.h"
#include "trace_caller.h"

#include <array>
#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

const std::string digest(40, 'd');

std::string written(const LimitCheck& check)
{
    redis::ScriptArguments arguments;
    arguments.begin(redis::Script::digest, digest, { 1, 1 });
    arguments.key(check.redis_key);
    arguments.begin_packed(sequence_format(1, numbers_of(check.policy.algorithm)).numbers);
    write_sequence_numbers(check, check.cost, arguments);
    arguments.end_packed();
    return std::string(arguments.text());
}

std::string written(std::span<const LimitCheck> checks, std::span<const std::int64_t> runs)
{
    redis::ScriptArguments arguments;
    arguments.begin(redis::Script::digest, digest, several_argument_count(checks, runs));
    write_several_arguments(checks, runs, arguments);
    return std::string(arguments.text());
}

std::string resp(std::initializer_list<std::string_view> words)
{
    return redis::plain_command(words);
}

/// The numbers as little-endian doubles.
std::string doubles(std::initializer_list<double> numbers)
{
    std::string text;
    for (const double number : numbers) {
        const auto bits = std::bit_cast<std::uint64_t>(number);
        for (unsigned shift = 0; shift < 64; shift += 8) {
            text += static_cast<char>(bits >> shift);
        }
    }
    return text;
}

TEST(ScriptCall, of_one_limit_has_its_key_and_five_packed_numbers)
{
    const LimitCheck check{ std::string_view("rl:z:{a\0\r\n}", 11),
                            { Algorithm::token_bucket, { 10, 60s }, 25, {} },
                            3,
                            false,
                            5us };
    EXPECT_EQ(
        written(check),
        resp({ "EVALSHA", digest, "1", check.redis_key, doubles({ 5, 10, 60'000'000, 25, 3 }) }));
}

TEST(ScriptCall, has_numbers_as_exact_as_luas)
{
    constexpr std::int64_t most = std::int64_t{ 1 } << 53;
    const LimitCheck check{ "a",
                            { Algorithm::gcra, { 1'000'000'000, 366 * 24h }, 999'999'999, {} },
                            most - 1,
                            false,
                            microseconds{ most } };
    EXPECT_EQ(
        written(check),
        resp({ "EVALSHA", digest, "1", "a",
               doubles({ 0x1p53, 1e9, 31'622'400e6, 1e9, 0x1p53 - 1 }) }));
}

TEST(ScriptCall, of_several_limits_has_each_algorithm_and_shadow_flag)
{
    const std::array checks = {
        LimitCheck{ "a", { Algorithm::fixed_window, { 10, 60s }, {}, {} }, 1, false, {} },
        LimitCheck{ "b", { Algorithm::sliding_window_buckets, { 5, 120s }, {}, 4s }, 0, true, {} },
        LimitCheck{
            "c", { Algorithm::gcra, { 1, 1s }, 4, {}, 9s }, 1, false, 7us, nullptr, "c:block" },
        LimitCheck{
            "d", { Algorithm::token_bucket, { 1, 1s }, 5, {}, 8s }, 1, true, 7us, nullptr, "e" },
    };
    const std::array<std::int64_t, 10> runs = { 2, 1, 0, 1, 1, 1, 3, 4, 5, 6 };
    EXPECT_EQ(
        written(checks, runs),
        resp({ "EVALSHA", digest, "6", "a",  "b",         "c",       "d",  // the keys
               "c:block", "e",    "4",                                     // of two blocks
               "0",       "0",    "0", "10", "60000000",  "0",       "",  // algorithm, mode, now, …
               "3",       "1",    "0", "5",  "124000000", "4000000", "",  //
               "6",       "10",   "7", "1",  "1000000",   "5",       "",  // with the fifth key
               "4",       "13",   "7", "1",  "1000000",   "5",       "",  // a shadow with the sixth
               "2",       "1",    "0", "1",  "1",      // two requests of these costs
               "1",       "3",    "4", "5",  "6" }));  // and one request of these
}

std::string packed(std::initializer_list<std::int64_t> numbers)
{
    std::string text;
    for (const auto number : numbers) {
        for (int shift = 56; shift >= 0; shift -= 8) {
            text += static_cast<char>(static_cast<std::uint64_t>(number) >> shift);
        }
    }
    return text;
}

redisReply reply_of(std::string& text, int type = REDIS_REPLY_STRING)
{
    redisReply reply{};
    reply.type = type;
    reply.str = text.data();
    reply.len = text.size();
    return reply;
}

bool reads(const std::string& text, Verdict& state)
{
    KeyReply reply;
    const bool good = read_sequence_reply(text, reply);
    state = verdict_of(reply);
    return good;
}

bool reads(std::string text, std::size_t answers, int type = REDIS_REPLY_STRING)
{
    std::vector<KeyReply> replies;
    return read_several_reply(reply_of(text, type), answers, replies);
}

TEST(ScriptReply, of_one_limit_has_six_numbers)
{
    Verdict state;
    ASSERT_TRUE(reads(packed({ 1, 4, 5'000'000, 0, 0, 0 }), state));
    EXPECT_EQ(state, (Verdict{ true, 4, 5s, 0us }));
    ASSERT_TRUE(reads(packed({ 0, 0, 7, -1, 0, 0 }), state));
    EXPECT_EQ(state, (Verdict{ false, 0, 7us, std::nullopt }));
}

TEST(ScriptReply, of_one_limit_has_the_reset_before_and_the_time)
{
    KeyReply reply;
    ASSERT_TRUE(
        read_sequence_reply(packed({ 1, 4, 5'000'000, 0, 7, 1'800'000'000'000'000 }), reply));
    EXPECT_EQ(verdict_of(reply), (Verdict{ true, 4, 5s, 0us }));
    EXPECT_EQ(reply.reset_before, 7us);
    EXPECT_EQ(reply.server_time, 1'800'000'000s);
    EXPECT_FALSE(read_sequence_reply(packed({ 1, 4, 5, 0, -7, 8 }), reply));
    EXPECT_FALSE(read_sequence_reply(packed({ 1, 4, 5, 0, 7, -8 }), reply));
    EXPECT_FALSE(read_sequence_reply(packed({ 1, 4, 5, 0, 7, 9'000'000'000'000'000 }), reply))
        << "the year 2255";
    EXPECT_FALSE(read_sequence_reply(packed({ 1, 4, 5, 0, 7 }), reply));
}

TEST(ScriptReply, of_several_limits_has_seven_numbers_for_each_and_the_time)
{
    auto text =
        packed({ 3, 1, 4, 5'000'000, 0, 9, 6, 0, 0, 2, 7, -1, 0, 0, 1'800'000'000'000'000 });
    const auto reply = reply_of(text);
    std::vector<KeyReply> several;
    ASSERT_TRUE(read_several_reply(reply, 2, several));
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
    };
    const auto taken = [](bool shadow, std::int64_t first, std::int64_t second) {
        const std::array limits{ Limit{ false }, Limit{ shadow } };
        std::vector<KeyReply> replies;
        EXPECT_TRUE(read_sequence_replies(
            packed({ first, 4, 5, 0, 6, 8, second, 4, 5, 0, 7, 8 }), limits, replies));
        return std::pair(replies[0].taken, replies[1].taken);
    };
    EXPECT_EQ(taken(false, 1, 1), std::pair(1L, 1L));
    EXPECT_EQ(taken(false, 1, 0), std::pair(0L, 0L)) << "in all limits or in none";
    EXPECT_EQ(taken(true, 1, 0), std::pair(1L, 0L)) << "a shadow refuses no request";
    EXPECT_EQ(taken(true, 0, 1), std::pair(0L, 0L));

    std::vector<KeyReply> replies;
    const std::array one{ Limit{ false } };
    ASSERT_TRUE(read_sequence_replies(packed({ 1, 4, 5, 0, 6, 8 }), one, replies));
    const RunReply in_sequence = replies.front();
    auto text = packed({ 1, 1, 4, 5, 0, 0, 6, 8 });
    ASSERT_TRUE(read_several_reply(reply_of(text), 1, replies));
    const RunReply& in_several = replies.front();
    EXPECT_EQ(in_several, in_sequence);
}

TEST(ScriptReply, of_a_holder_has_its_place_if_the_script_knows_it)
{
    std::vector<KeyReply> replies;
    KeyReply reply;
    ASSERT_TRUE(read_sequence_reply(packed({ 0, 0, 5, 1, 3, 8 }), reply));
    EXPECT_EQ(reply.place, 3);
    auto text = packed({ 1, 1, 4, 5, 0, 0, 3, 8 });
    ASSERT_TRUE(read_several_reply(reply_of(text), 1, replies));
    EXPECT_EQ(replies.front().place, 3);
    text = packed({ 0, 0, 4, 5, 1, 0, 0, 8 });
    ASSERT_TRUE(read_several_reply(reply_of(text), 1, replies));
    EXPECT_EQ(replies.front().place, -1) << "several.lua says 0 if nothing was counted";
}

TEST(ScriptReply, says_what_is_left_of_a_block_beside_the_counts)
{
    KeyReply reply;
    ASSERT_TRUE(read_sequence_reply(packed({ 28, 3, 5, 0, 0, 0 }), reply));
    EXPECT_EQ(reply.blocked, 7us);
    EXPECT_EQ(verdict_of(reply), (Verdict{ false, 3, 5us, 0us })) << "admitted by the counts";
    ASSERT_TRUE(read_sequence_reply(packed({ 29, 3, 5, 0, 0, 0 }), reply));
    EXPECT_EQ(reply.blocked, 7us) << "a request of cost 0";
    EXPECT_TRUE(reply.admits_next);
    EXPECT_FALSE(reply.spared);
    ASSERT_TRUE(read_sequence_reply(packed({ 2, 0, 5, 9, 0, 0 }), reply));
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
    EXPECT_FALSE(reads(packed({ 1, 4, 5 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, 0, 0, 0, 1, 4, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(packed({ -1, 4, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, -4, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, -5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, -3, 0, 0 }), one));
    constexpr std::int64_t too_large = (std::int64_t{ 1 } << 58) + 1;
    EXPECT_FALSE(reads(packed({ 1, too_large, 5, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, too_large, 0, 0, 0 }), one));
    EXPECT_FALSE(reads(packed({ 0, 4, 5, too_large, 0, 0 }), one));

    const std::size_t answers = 1;
    EXPECT_TRUE(reads(packed({ 1, 1, 4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads("", answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, 0, 8, 8 }), answers));
    EXPECT_FALSE(reads(packed({ -1, 1, 4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, -5, 4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, -4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, -5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, -3, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, too_large, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, -1, 0, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, -6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, 6, 8 }), answers, REDIS_REPLY_ERROR));
}

TEST(ScriptReply, that_takes_more_than_was_asked_for_does_not_fit)
{
    Runs runs;
    runs.begin(1);
    for (const std::int64_t cost : { 5, 5, 7 }) {  // two requests, and one
        runs.add([cost](std::size_t) { return cost; });
    }
    const auto fits = [&runs](std::int64_t first, std::int64_t second) {
        auto text = packed({ first, 1, 4, 5, 0, 0, 6, second, 1, 4, 5, 0, 0, 6, 8 });
        const auto reply = reply_of(text);
        std::vector<KeyReply> replies;
        return read_several_reply(reply, 2, replies) && ratelimit::fits(replies, runs);
    };
    EXPECT_TRUE(fits(2, 1));
    EXPECT_FALSE(fits(3, 1));
    EXPECT_FALSE(fits(2, 2));
    runs.lease(10);
    EXPECT_TRUE(fits(2, 11));
    EXPECT_FALSE(fits(2, 12));
    EXPECT_FALSE(fits(2, INT64_MAX));
}

TEST(ScriptText, equal_sets_have_one_script)
{
    const std::array forth = { Algorithm::gcra, Algorithm::fixed_window, Algorithm::gcra };
    const std::array back = { Algorithm::fixed_window, Algorithm::gcra };
    EXPECT_EQ(several_script(forth), several_script(back));
    EXPECT_EQ(single_script(Algorithm::gcra), single_script(Algorithm::token_bucket));
    EXPECT_NE(single_script(Algorithm::gcra), single_script(Algorithm::fixed_window));
}

TEST(ScriptText, reads_a_block_only_for_limits_that_have_one)
{
    const SequenceLimit without{ Algorithm::gcra };
    const SequenceLimit with{ Algorithm::gcra, false, true };
    EXPECT_EQ(sequence_script({ &without, 1 }).find("block"), std::string::npos);
    EXPECT_NE(
        sequence_script({ &with, 1 }).find("local block_key = KEYS[first + 1]\n"),
        std::string::npos);
}

TEST(ScriptText, each_choice_of_limits_has_a_script_when_it_is_used)
{
    const std::array limits = { SequenceLimit{ Algorithm::gcra },
                                SequenceLimit{ Algorithm::fixed_window, true },
                                SequenceLimit{ Algorithm::token_bucket } };
    redis::ScriptRegistry scripts;
    SequenceScripts sequences(limits, scripts);
    EXPECT_EQ(scripts.size(), 0U) << "none before";
    const auto text = [&](std::size_t bits) { return scripts.text(sequences.of(bits).value()); };
    EXPECT_EQ(text(7), sequence_script(limits));
    EXPECT_EQ(text(2), single_script(Algorithm::fixed_window)) << "alone, shadows are no others";
    EXPECT_EQ(sequences.of(1), sequences.of(4)) << "of one text";
    EXPECT_EQ(text(3), sequence_script(std::span{ limits }.first(2)));
    EXPECT_EQ(text(6), sequence_script(std::span{ limits }.last(2)));
    const std::array first_and_last = { limits[0], limits[2] };
    EXPECT_EQ(text(5), sequence_script(first_and_last));
    EXPECT_EQ(scripts.size(), 6U);
}

/// Limits of two algorithms by turns.
std::vector<SequenceLimit> sixteen_limits()
{
    std::vector<SequenceLimit> limits(SequenceScripts::most);
    for (std::size_t i = 0; i < limits.size(); i += 2) {
        limits[i].algorithm = Algorithm::gcra;
    }
    return limits;
}

TEST(ScriptText, clients_that_leave_out_any_limits_have_no_more_scripts_made_than_a_bound)
{
    redis::ScriptRegistry scripts;
    SequenceScripts first(sixteen_limits(), scripts);
    SequenceScripts second(sixteen_limits(), scripts);
    std::size_t of_first = 0;
    for (std::size_t bits = 1; bits < 2000; ++bits) {
        of_first += first.of(bits) ? 1 : 0;
        second.of(bits << 3U & 0xFFFFU);
    }
    EXPECT_LE(of_first, SequenceScripts::most_choices + SequenceScripts::most);
    EXPECT_LE(scripts.size(), redis::ScriptRegistry::most_chosen + 2);
    EXPECT_TRUE(first.of(3)) << "was made before";
    EXPECT_FALSE(first.of(0xF0F0)) << "too late";
    EXPECT_TRUE(first.of(0x8000)) << "one alone";
    EXPECT_TRUE(second.of(0xFFFF)) << "all";
}

TEST(ScriptText, the_longest_sequence_of_each_algorithm_compiles)
{
    const RedisServer server;
    for (const Algorithm algorithm : all_algorithms) {
        const std::vector<SequenceLimit> limits(
            SequenceScripts::most, SequenceLimit{ algorithm, false, true });
        const auto reply = server.ask({ "SCRIPT", "LOAD", sequence_script(limits) });
        EXPECT_EQ(reply.size(), 40U) << reply;
    }
}

TEST(ScriptRegistry, stores_equal_texts_once)
{
    redis::ScriptRegistry scripts;
    const auto first = scripts.add("a");
    EXPECT_NE(scripts.add("b"), first);
    EXPECT_EQ(scripts.add("a"), first);
    EXPECT_EQ(scripts.size(), 2U);
    EXPECT_EQ(scripts.text(first), "a");
    const auto& sha1 = scripts.digests()[0];
    EXPECT_EQ(std::string(sha1.begin(), sha1.end()), "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8");
}

}  // namespace
}  // namespace ratelimit
