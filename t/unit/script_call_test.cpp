#include "check/script_call.h"
#include "check/script_reply.h"
#include "check/script_text.h"
#include "redis/script_registry.h"

#include <array>
#include <string>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

const std::string digest(40, 'd');

std::string written(std::span<const LimitCheck> checks)
{
    redis::ScriptArguments arguments;
    if (checks.size() == 1) {
        arguments.begin(digest, single_argument_count);
        write_single_arguments(checks.front(), arguments);
    } else {
        arguments.begin(digest, several_argument_count(checks.size()));
        write_several_arguments(checks, arguments);
    }
    return std::string(arguments.text());
}

std::string resp(std::initializer_list<std::string_view> words)
{
    return redis::plain_command(words);
}

TEST(ScriptCall, one_limit_is_its_key_and_five_numbers)
{
    const LimitCheck check{ std::string_view("rl:z:{a\0\r\n}", 11),
                            { Algorithm::token_bucket, { 10, 60s }, 25, {} },
                            3,
                            false,
                            5us };
    EXPECT_EQ(
        written({ &check, 1 }),
        resp({ "EVALSHA", digest, "1", check.key, "5", "10", "60000000", "25", "3" }));
}

TEST(ScriptCall, several_limits_say_their_algorithm_and_whether_they_are_shadows)
{
    const std::array checks = {
        LimitCheck{ "a", { Algorithm::fixed_window, { 10, 60s }, {}, {} }, 1, false, {} },
        LimitCheck{ "b", { Algorithm::sliding_window_buckets, { 5, 120s }, {}, 4s }, 0, true, {} },
        LimitCheck{ "c", { Algorithm::gcra, { 1, 1s }, 4, {} }, 1, false, 7us },
    };
    EXPECT_EQ(written(checks), resp({ "EVALSHA", digest, "3",  "a",         "b",       "c", "0",
                                      "0",       "0",    "10", "60000000",  "0",       "1", "3",
                                      "1",       "0",    "5",  "120000000", "4000000", "0", "6",
                                      "0",       "7",    "1",  "1000000",   "5",       "1" }));
}

/// Four 64-bit numbers for each limit.
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

bool reads(std::string text, std::span<LimitState> states, int type = REDIS_REPLY_STRING)
{
    redisReply reply{};
    reply.type = type;
    reply.str = text.data();
    reply.len = text.size();
    return read_reply(reply, states);
}

TEST(ScriptReply, has_four_numbers_for_each_limit)
{
    std::array<LimitState, 2> states;
    ASSERT_TRUE(reads(packed({ 1, 4, 5'000'000, 0, 0, 0, 7, -1 }), states));
    EXPECT_EQ(states[0], (LimitState{ true, 4, 5s, 0us }));
    EXPECT_EQ(states[1], (LimitState{ false, 0, 7us, std::nullopt }));
}

TEST(ScriptReply, of_another_shape_is_no_decision)
{
    std::array<LimitState, 1> one;
    EXPECT_FALSE(reads("", one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, 0, 1, 4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 2, 4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ -1, 4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, -4, 5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, -5, 0 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, -2 }), one));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, 0 }), one, REDIS_REPLY_STATUS));
    EXPECT_FALSE(reads(packed({ 1, 4, 5, 0 }), one, REDIS_REPLY_ARRAY));
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
