#include "check/script_call.h"
#include "check/script_reply.h"
#include "check/script_text.h"
#include "redis/script_registry.h"

#include <array>
#include <bit>
#include <string>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

const std::string digest(40, 'd');

std::string written(const LimitCheck& check)
{
    redis::ScriptArguments arguments;
    arguments.begin(digest, { 1, 1 });
    arguments.key(check.redis_key);
    arguments.begin_packed(batch_format.numbers);
    write_single_numbers(check, arguments);
    arguments.end_packed();
    return std::string(arguments.text());
}

std::string written(std::span<const LimitCheck> checks, std::span<const std::int64_t> runs)
{
    redis::ScriptArguments arguments;
    arguments.begin(digest, several_argument_count(checks.size(), runs));
    write_several_arguments(checks, runs, arguments);
    return std::string(arguments.text());
}

std::string resp(std::initializer_list<std::string_view> words)
{
    return redis::plain_command(words);
}

/// As little-endian doubles.
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

TEST(ScriptCall, one_limit_is_its_key_and_five_numbers_in_one)
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

TEST(ScriptCall, numbers_are_as_exact_as_lua_has_them)
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

TEST(ScriptCall, several_limits_say_their_algorithm_and_whether_they_are_shadows)
{
    const std::array checks = {
        LimitCheck{ "a", { Algorithm::fixed_window, { 10, 60s }, {}, {} }, 1, false, {} },
        LimitCheck{ "b", { Algorithm::sliding_window_buckets, { 5, 120s }, {}, 4s }, 0, true, {} },
        LimitCheck{ "c", { Algorithm::gcra, { 1, 1s }, 4, {} }, 1, false, 7us },
    };
    const std::array<std::int64_t, 8> runs = { 2, 1, 0, 1, 1, 3, 4, 5 };
    EXPECT_EQ(
        written(checks, runs),
        resp({ "EVALSHA", digest, "3", "a",  "b",         "c",        // the keys
               "0",       "0",    "0", "10", "60000000",  "0",        // algorithm, shadow, now, …
               "3",       "1",    "0", "5",  "120000000", "4000000",  //
               "6",       "0",    "7", "1",  "1000000",   "5",        //
               "2",       "1",    "0", "1",                           // two of these costs
               "1",       "3",    "4", "5" }));                       // and one of those
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
    return read_single_part(text, state);
}

bool reads(std::string text, std::size_t answers, int type = REDIS_REPLY_STRING)
{
    return SeveralReply(reply_of(text, type), answers).good();
}

TEST(ScriptReply, of_one_limit_has_four_numbers)
{
    Verdict state;
    ASSERT_TRUE(reads(packed({ 1, 4, 5'000'000, 0 }), state));
    EXPECT_EQ(state, (Verdict{ true, 4, 5s, 0us }));
    ASSERT_TRUE(reads(packed({ 0, 0, 7, -1 }), state));
    EXPECT_EQ(state, (Verdict{ false, 0, 7us, std::nullopt }));
}

TEST(ScriptReply, of_several_has_seven_numbers_for_each_and_the_time)
{
    auto text =
        packed({ 3, 1, 4, 5'000'000, 0, 9, 6, 0, 0, 2, 7, -1, 0, 0, 1'800'000'000'000'000 });
    const auto reply = reply_of(text);
    const SeveralReply several(reply, 2);
    ASSERT_TRUE(several.good());
    EXPECT_EQ(several.answer(0), (RunReply{ 3, true, 4, 5s, 0us, 9, 6us }));
    EXPECT_EQ(several.answer(1), (RunReply{ 0, false, 2, 7us, std::nullopt, 0, 0us }));
    EXPECT_EQ(several.server_time(), 1'800'000'000s);
}

TEST(ScriptReply, of_another_shape_is_no_decision)
{
    Verdict one;
    EXPECT_FALSE(reads("", one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, 0, 1, 4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 2, 4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ -1, 4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, -4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, -5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, -2 }), one));

    const std::size_t answers = 1;
    EXPECT_TRUE(reads(packed({ 1, 1, 4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads("", answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, 0, 8, 8 }), answers));
    EXPECT_FALSE(reads(packed({ -1, 1, 4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 2, 4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, -4, 5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, -5, 0, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, -2, 0, 6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, -1, 0, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, -6, 8 }), answers));
    EXPECT_FALSE(reads(packed({ 1, 1, 4, 5, 0, 0, 6, 8 }), answers, REDIS_REPLY_ERROR));
}

TEST(ScriptText, equal_sets_have_one_script)
{
    const std::array forth = { Algorithm::gcra, Algorithm::fixed_window, Algorithm::gcra };
    const std::array back = { Algorithm::fixed_window, Algorithm::gcra };
    EXPECT_EQ(several_script(forth), several_script(back));
    EXPECT_EQ(single_script(Algorithm::gcra), single_script(Algorithm::token_bucket));
    EXPECT_NE(single_script(Algorithm::gcra), single_script(Algorithm::fixed_window));
}

TEST(ScriptRegistry, knows_equal_texts_as_one)
{
    redis::ScriptRegistry scripts;
    const auto first = scripts.add("a");
    EXPECT_NE(scripts.add("b"), first);
    EXPECT_EQ(scripts.add("a"), first);
    EXPECT_EQ(scripts.size(), 2U);
    EXPECT_EQ(scripts.text(first), "a");
}

}  // namespace
}  // namespace ratelimit
