#include "all_algorithms.h"
#include "check/script_call.h"
#include "check/script_reply.h"
#include "check/script_text.h"
#include "check/sequence_scripts.h"
#include "redis/script_registry.h"
#include "redis_server.h"
#include "reply_bytes.h"
#include "trace_caller.h"

#include <array>
#include <cmath>
#include <stdexcept>
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
    const redis::BatchFormat format = single_format(check.policy.algorithm);
    const bool own = format.own_numbers;
    arguments.begin(redis::Script::digest, digest, { 1, own ? 2U : 1U });
    arguments.key(check.redis_key);
    arguments.begin_packed();
    write_sequence_numbers(check, check.cost, arguments);
    arguments.end_packed();
    if (own) {
        arguments.begin_packed();
        write_holder(check, arguments);
        arguments.end_packed();
    }
    return std::string(arguments.text());
}

std::string written(std::span<const LimitCheck> checks, std::span<const std::int64_t> runs)
{
    redis::ScriptArguments arguments;
    arguments.begin(redis::Script::digest, digest, several_argument_count(checks));
    write_several_arguments(checks, runs, arguments);
    return std::string(arguments.text());
}

std::string resp(std::initializer_list<std::string_view> words)
{
    return redis::plain_command(words);
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
        resp({ "EVALSHA", digest, "6", "a", "b", "c", "d",  // the keys
               "c:block", "e",                              // of two blocks
               doubles(
                   { 0, 0,  0, 10, 60'000'000,  0,         0, 0, 0, -1,     // algorithm, mode, …
                     3, 1,  0, 5,  124'000'000, 4'000'000, 0, 0, 0, -1,     //
                     6, 10, 7, 1,  1'000'000,   5,         0, 0, 0, -1,     // the fifth key
                     4, 13, 7, 1,  1'000'000,   5,         0, 0, 0, -1 }),  // a shadow, the sixth
               doubles({ 2, 1, 0, 1, 1,         // two requests of these costs
                         1, 3, 4, 5, 6 }) }));  // and one request of these
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
    const auto text = [&](std::size_t bits) { return scripts.at(sequences.of(bits)->script).text; };
    EXPECT_EQ(text(7), sequence_script(limits));
    EXPECT_EQ(text(2), single_script(Algorithm::fixed_window)) << "alone, shadows are no others";
    EXPECT_EQ(sequences.of(1)->script, sequences.of(4)->script) << "of one text";
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
    EXPECT_EQ(scripts.at(first).text, "a");
    const auto& sha1 = scripts.at(first).digest;
    EXPECT_EQ(std::string(sha1.begin(), sha1.end()), "86f7e437faa5a7fce15d1ddcb9eaeaea377667b8");
}

TEST(ScriptRegistry, has_no_other_script_in_place_of_one_that_is_missing)
{
    redis::ScriptRegistry scripts;
    scripts.add("a");
    redis::CommandBuffer command(scripts);
    EXPECT_THROW(command.begin_script(redis::ScriptId::none, { 0, 0 }), std::out_of_range);
}

}  // namespace
}  // namespace ratelimit
