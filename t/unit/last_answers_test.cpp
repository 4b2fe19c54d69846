// What Redis last answered about keys, in a zone's shared memory.

#include "slab_zone.h"

#include "store/last_answers.h"

namespace ratelimit {
namespace {

using namespace std::chrono_literals;

class KnownAnswers : public testing::Test {
protected:
    explicit KnownAnswers(std::size_t size = std::size_t{ 32 } * 1024) : memory_(size) {}

    static constexpr std::int64_t n = 5;
    static constexpr std::uint64_t same_tag = 7 + (std::uint64_t{ 1 } << 32U);
    static constexpr Policy policy{ Algorithm::fixed_window, { 100, 60s }, {}, {} };

    LastAnswers answers() { return memory_.memory().last_answers(); }
    std::optional<Verdict> let_in(std::string_view key, std::int64_t cost = 1)
    {
        return answers().let_in({ key, 7, cost }, policy, n, now);
    }
    /// What remains after one more request; -1: Redis must decide.
    std::int64_t rest(std::string_view key)
    {
        const auto state = let_in(key);
        return state ? state->remaining : -1;
    }
    void answer(
        std::string_view key, std::int64_t left, microseconds decided, microseconds sent,
        std::int64_t unanswered = 0, std::uint64_t policy_hash = 7)
    {
        answers().answered(
            { key, policy_hash, 0 }, policy, n, { left, 0, 60s, decided, sent, now }, unanswered);
    }
    bool passes_under(std::uint64_t policy_hash, std::string_view key = "a")
    {
        return answers().let_in({ key, policy_hash, 1 }, policy, n, now).has_value();
    }

    TestZone memory_;
    microseconds now = 1000s;
};

TEST_F(KnownAnswers, all_is_left_of_a_key_that_is_not_known)
{
    EXPECT_EQ(rest("a"), 99);
    EXPECT_EQ(rest("a"), 98);
    EXPECT_EQ(let_in("a", 98)->remaining, 0);
    EXPECT_FALSE(let_in("a"));
    EXPECT_EQ(memory_.memory().keys(), 1U);
}

TEST_F(KnownAnswers, a_limit_below_n_is_decided_by_redis)
{
    EXPECT_FALSE(answers().let_in({ "a", 7, 1 }, policy, 101, now));
    EXPECT_EQ(memory_.memory().keys(), 0U);
}

TEST_F(KnownAnswers, less_than_n_left_is_decided_by_redis)
{
    answer("a", 5, 10s, now);
    EXPECT_EQ(rest("a"), 4);
    answer("a", 4, 11s, now);
    EXPECT_EQ(rest("a"), -1);
    now += 24h;
    EXPECT_EQ(rest("a"), -1) << "time raises nothing";
    answer("a", 100, 12s, now);
    EXPECT_EQ(rest("a"), 99);
}

TEST_F(KnownAnswers, all_is_left_of_a_key_that_returns_when_it_should_have_all)
{
    answer("a", 5, 10s, now);
    EXPECT_EQ(rest("a"), 4);
    now += 61s;
    EXPECT_EQ(rest("a"), 99);
}

TEST_F(KnownAnswers, what_the_answer_does_not_include_is_not_left)
{
    answer("a", 50, 10s, now, 3);
    EXPECT_EQ(rest("a"), 46);
    answers().take_back({ "a", 7, 1 });
    EXPECT_EQ(rest("a"), 46);
}

TEST_F(KnownAnswers, an_older_answer_raises_nothing)
{
    const microseconds early = now;
    now += 1s;
    answer("a", 2, 20s, early);
    answer("a", 90, 19s, early);
    EXPECT_EQ(rest("a"), -1);
    answer("a", 90, 20s, early);
    EXPECT_EQ(rest("a"), -1) << "made at the same time";
    answer("a", 80, 21s, early);
    EXPECT_EQ(rest("a"), 79);
    answer("a", 1, 20s, early);
    EXPECT_EQ(rest("a"), -1) << "but it may lower it";
}

TEST_F(KnownAnswers, an_answer_to_a_later_call_is_newer_whatever_the_clock_of_redis)
{
    answer("a", 2, 20s, now);
    now += 1s;
    answer("a", 90, 10s, now);
    EXPECT_EQ(rest("a"), 89);
}

TEST_F(KnownAnswers, a_doubt_lasts_until_the_next_answer)
{
    answer("a", 50, 10s, now);
    answers().doubt({ "a", 7, 0 });
    EXPECT_EQ(rest("a"), -1);
    answer("a", 50, 11s, now);
    EXPECT_EQ(rest("a"), 49);
}

TEST_F(KnownAnswers, another_policy_knows_nothing_of_it)
{
    answer("a", 2, 10s, now);
    EXPECT_TRUE(answers().let_in({ "a", 8, 1 }, policy, n, now));
    EXPECT_TRUE(answers().let_in({ "a", 7 + 256, 1 }, policy, n, now)) << "of the same low byte";
    EXPECT_EQ(rest("a"), -1) << "and takes nothing of it away";
}

TEST_F(KnownAnswers, under_a_policy_of_the_same_tag_redis_decides)
{
    answer("a", 2, 10s, now);
    EXPECT_FALSE(passes_under(same_tag));
    answer("a", 90, 11s, now, 0, same_tag);
    EXPECT_FALSE(passes_under(same_tag));
    EXPECT_FALSE(passes_under(7)) << "it raises nothing";
    answer("a", 90, 12s, now);
    EXPECT_TRUE(passes_under(7));
    answer("a", 0, 13s, now, 0, same_tag);
    EXPECT_FALSE(passes_under(7)) << "but that nothing is left holds for all";
}

TEST_F(KnownAnswers, policies_that_alternate_let_nothing_more_in)
{
    for (std::uint64_t policy_hash = 0; policy_hash < 300; ++policy_hash) {
        answer("a", 0, 10s, now);
        for (int round = 0; round < 3; ++round) {
            answer("a", 50, 20s, now, 0, policy_hash == 7 ? 8 : policy_hash);
            EXPECT_FALSE(passes_under(7)) << policy_hash;
        }
        answers().forget_key("a");
    }
}

class ManyKnownAnswers : public KnownAnswers {
protected:
    ManyKnownAnswers() : KnownAnswers(std::size_t{ 256 } * 1024) {}
};

TEST_F(ManyKnownAnswers, redis_decides_under_more_policies_than_can_be_known)
{
    for (std::uint64_t policy_hash = 0; policy_hash < 256; ++policy_hash) {
        EXPECT_TRUE(passes_under(policy_hash)) << policy_hash;
        answer("a", 2, 10s, now, 0, policy_hash);
    }
    EXPECT_FALSE(passes_under(256));
    EXPECT_TRUE(passes_under(256, "b")) << "of another key";
    now += 61s;
    EXPECT_FALSE(passes_under(256)) << "it makes room for the next ones";
    EXPECT_TRUE(passes_under(256));
}

TEST_F(KnownAnswers, nothing_left_holds_for_every_policy_of_the_key)
{
    const microseconds early = now;
    EXPECT_TRUE(passes_under(8)) << "known before";
    answer("a", 90, 9s, early, 0, 9);
    now += 1s;
    answer("a", 0, 10s, early);
    for (const std::uint64_t known : { 8, 9 }) {
        EXPECT_FALSE(passes_under(known)) << known;
        answer("a", 90, 9900ms, early, 0, known);
        EXPECT_FALSE(passes_under(known)) << known << ": an older answer raises nothing";
    }
    EXPECT_FALSE(passes_under(10)) << "not known before";
    EXPECT_FALSE(passes_under(same_tag)) << "of the same tag";
    EXPECT_FALSE(passes_under(7));
    EXPECT_TRUE(passes_under(7, "b")) << "another key";
    answer("a", 90, 11s, early, 0, 8);
    EXPECT_TRUE(passes_under(8)) << "until its next answer";
}

TEST_F(KnownAnswers, nothing_left_leaves_newer_answers_as_they_are)
{
    const microseconds early = now;
    now += 1s;
    answer("a", 90, 20s, early, 0, 8);
    answer("a", 0, 10s, early);
    EXPECT_TRUE(passes_under(8));
    EXPECT_FALSE(passes_under(7));
}

TEST_F(KnownAnswers, the_reset_is_the_answers_and_that_of_what_was_let_in)
{
    answer("a", 50, 10s, now);
    EXPECT_EQ(let_in("a")->reset, 60s);
    now += 10s;
    EXPECT_EQ(let_in("a")->reset, 50s);
    constexpr Policy bucket{ Algorithm::token_bucket, { 60, 60s }, {}, {} };
    EXPECT_EQ(answers().let_in({ "b", 7, 3 }, bucket, n, now)->reset, 3s);
}

TEST_F(KnownAnswers, keys_with_little_left_are_evicted_last_and_not_by_new_keys)
{
    for (int i = 0; i < 20; ++i) {
        answer("scarce " + std::to_string(i), 1, 10s, now);
    }
    for (int i = 0; i < 3000; ++i) {
        answer("plenty " + std::to_string(i), 90, 10s, now);
    }
    EXPECT_GT(memory_.memory().evictions(), 0U);
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(rest("scarce " + std::to_string(i)), -1) << i;
    }
    for (int i = 0; i < 3000; ++i) {
        answer("scarce too " + std::to_string(i), 1, 10s, now);
    }
    EXPECT_EQ(rest("scarce 0"), -1) << "memory is full of such keys";
    EXPECT_EQ(rest("new"), -1) << "a new key finds no room, and Redis decides";
    now += 61s;  // the limits of all of them should be available again
    EXPECT_EQ(rest("new"), 99);
}

TEST_F(KnownAnswers, what_took_the_place_of_a_key_with_little_left_lets_no_other_key_in)
{
    for (int i = 0; i < 3000; ++i) {
        answer("scarce " + std::to_string(i), 1, 10s, now);
    }
    const Verdict refusal{ false, 0, 60s, {}, 60s };
    memory_.memory().denials().add({ "refused", 7, 1 }, { 0, 0, now }, refusal, now, 60s);
    ASSERT_TRUE(memory_.memory().denials().find({ "refused", 7, 1 }, now));
    memory_.memory().forget_key("refused");  // makes room for a new key
    EXPECT_EQ(rest("new"), -1);
    answer("new", 90, 10s, now);
    EXPECT_EQ(rest("new"), 89) << "an answer is known as ever";
    now += 61s;
    EXPECT_EQ(rest("another"), 99);
}

TEST_F(KnownAnswers, keys_that_should_have_all_left_are_forgotten_when_others_come)
{
    for (int i = 0; i < 50; ++i) {
        answer("old " + std::to_string(i), 90, 10s, now);
    }
    answer("scarce", 1, 10s, now);
    now += 61s;
    for (int i = 0; i < 50; ++i) {
        rest("new " + std::to_string(i));
    }
    EXPECT_EQ(memory_.memory().keys(), 51U);
    EXPECT_EQ(memory_.memory().evictions(), 0U);
    EXPECT_EQ(rest("scarce"), -1);
}

TEST_F(KnownAnswers, a_key_is_forgotten)
{
    answer("a", 1, 10s, now);
    memory_.memory().forget_key("a");
    EXPECT_EQ(rest("a"), 99);
}

}  // namespace
}  // namespace ratelimit
