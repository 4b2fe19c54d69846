// Values that no script of the module wrote, of every type and shape, under sixteen keys of one
// call: the reply has verdicts for all keys, those of the others are exact, and an admitted request
// overwrites the value.
#include "check/script_text.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <array>
#include <bit>
#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

constexpr std::size_t keys_of_a_call = 16;

/// Lua before a script whose keys then last an hour. Keys expire by Redis's clock: on a slow
/// machine that runs ahead of the trace's.
const std::string lasting_keys = R"lua(
local call = redis.call
local redis = { pcall = redis.pcall, call = function(command, ...)
    local words = { ... }
    for i = 3, #words do
        if words[i] == 'PX' then words[i + 1] = '3600000' end
    end
    if command == 'PEXPIRE' then words[2] = '3600000' end
    return call(command, unpack(words))
end }
)lua";

class ForeignValue : public testing::TestWithParam<Algorithm>, protected TraceMaker {
protected:
    std::string any_bytes(std::int64_t size)
    {
        std::string text;
        for (; size > 0; --size) {
            text += static_cast<char>(any(0, 255));
        }
        return text;
    }
    static std::string big_endian(std::uint64_t number, unsigned bytes)
    {
        std::string text;
        while (bytes-- > 0) {
            text += static_cast<char>(number >> 8 * bytes);
        }
        return text;
    }
    std::uint64_t any_count()
    {
        return static_cast<std::uint64_t>(
            any_of<std::int64_t>({ 0, 1, any(1, 30), any(1, 30), any(1, 3000), 0xFFFF'FFFF }));
    }
    std::uint64_t any_time(Time now)
    {
        return static_cast<std::uint64_t>(
            any_of<Time>({ 0, 1, now, now - any(0, 100 * second), now - any(0, 100 * second),
                           now + any(0, 100 * second), now + 10 * day, (Time{ 1 } << 56) - 1 }));
    }
    /// The end of a log or of buckets, after entries that may be missing.
    std::string any_trailer(Time now)
    {
        const bool log = any(0, 1) == 0;
        std::string text = any_bytes(any_of<std::int64_t>({ 0, any(0, 13), any(0, 3000) }));
        for (auto entries = any(0, 20); entries > 0; --entries) {
            text += big_endian(any_time(now), 7) + (log ? "" : big_endian(any_count(), 6));
        }
        text += big_endian(any_time(now), 7);
        text += log ? "" : big_endian(any_count(), 6);
        text += big_endian(any_count(), 4) + big_endian(any_count(), 4);
        text += big_endian(any_time(now), 7);
        text += log ? "" : big_endian(any_count(), 6);
        return text + big_endian(any_time(now), 7) + (log ? "sl" : "sb");
    }
    std::string any_doubles(Time now)
    {
        std::string text;
        const auto window = 10 * second;
        for (auto left = any(2, 3); left > 0; --left) {
            const double number = any_of<double>({ 0.0, -0.0, -1.0, -1e300, 1e300, 0x1p53, 0.5,
                                                   std::bit_cast<double>(~0ULL), 1.0,
                                                   static_cast<double>(now - now % window),
                                                   static_cast<double>(now - now % window + window),
                                                   static_cast<double>(now - now % window - window),
                                                   std::numeric_limits<double>::infinity() });
            auto bits = std::bit_cast<std::uint64_t>(number);
            for (int byte = 0; byte < 8; ++byte, bits >>= 8) {
                text += static_cast<char>(bits);
            }
        }
        return text + std::string("\x0a\0\0\0", 4);
    }
    std::string any_arrival_time(Time now)
    {
        return big_endian(any_time(now), 7) + big_endian(any_count(), 4)
            + big_endian(any_time(now), 7);
    }
    /// A value that a script wrote, with some bytes changed, added or removed.
    std::string any_damage(std::string text)
    {
        for (auto left = any(1, 3); left > 0 && !text.empty(); --left) {
            text[static_cast<std::size_t>(any(0, std::ssize(text) - 1))] =
                static_cast<char>(any(0, 255));
        }
        if (any(0, 2) == 0) {
            text.resize(static_cast<std::size_t>(any(0, std::ssize(text))));
        }
        return any(0, 2) == 0 ? any_bytes(any(1, 20)) + text : text;
    }

    void make_foreign(const std::string& key, Time now)
    {
        const std::string own = server_.ask({ "GET", key });
        caller_.number({ "DEL", key });
        switch (any(0, 9)) {
        case 0:
            caller_.number({ "RPUSH", key, "x" });
            return;
        case 1:
            caller_.number({ "HSET", key, "field", "1" });
            return;
        case 2:
            caller_.number({ "ZADD", key, "1", "x" });
            return;
        default:
            break;
        }
        const std::string texts[] = { any_bytes(any(0, 60)),
                                      any_of<const char*>({ "", "1e3", "9223372036854775807",
                                                            "1800000000000000", "-5", "nan" }),
                                      any_trailer(now),
                                      any_trailer(now),
                                      any_doubles(now),
                                      any_arrival_time(now),
                                      any_damage(own),
                                      any_damage(own) };
        caller_.number({ "SET", key, texts[any(0, 7)] });
    }

    struct Key {
        std::string name;
        std::unique_ptr<Model> model;
        bool foreign = false;
    };

    void expect_right(
        Key& key, const LimitCheck& check, const std::optional<Verdict>& state, Time now)
    {
        ASSERT_TRUE(state) << "the reply's part for a key";
        if (key.foreign) {
            return;
        }
        const Verdict expected = key.model->decide(check.policy, now, check.cost).state;
        ASSERT_EQ(text_of(*state), text_of(expected));
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
};

TEST_P(ForeignValue, fails_no_call_and_all_other_keys_are_decided_exactly)
{
    const auto digest = caller_.load_with_clock(lasting_keys + single_script(GetParam()));
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 200;
    for (int trace = 0; trace < traces && !HasFatalFailure(); ++trace) {
        std::vector<Key> keys(keys_of_a_call);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            keys[i].name = "k" + std::to_string(trace) + "." + std::to_string(i);
            keys[i].model = Model::of(GetParam());
        }
        Policy policy = any_policy(GetParam());
        policy.rate.window = microseconds{ any_of<Time>({ 10 * second, 60 * second }) };
        Time now = start_of_traces + any(0, day);
        for (int step = 0; step < 12 && !HasFatalFailure(); ++step) {
            change_policy(policy);
            std::vector<LimitCheck> checks;
            for (Key& key : keys) {
                if (any(0, 15) == 0 || (key.foreign && any(0, 1) == 0)) {
                    key.foreign = true;
                    make_foreign(key.name, now);
                }
                checks.push_back(
                    { key.name, policy, any_cost(policy), false, microseconds{ now } });
            }
            const auto states = caller_.check_together(digest, checks, microseconds{ now });
            ASSERT_EQ(states.size(), keys.size()) << where(trace, step, checks[0]);
            for (std::size_t i = 0; i < keys.size() && !HasFatalFailure(); ++i) {
                SCOPED_TRACE(where(trace, step, checks[i]));
                expect_right(keys[i], checks[i], states[i], now);
            }
            now += any_of<Time>({ 0, 1, any(0, second), any(0, 20 * second), -any(0, second) });
        }
        caller_.number({ "FLUSHALL" });
    }
}

TEST_P(ForeignValue, is_overwritten_by_an_admitted_request)
{
    const auto digest = caller_.load_with_clock(single_script(GetParam()));
    Policy policy = any_policy(GetParam());
    policy.rate = { 9, microseconds{ 10 * second } };
    policy.burst = keeps_arrival_time(GetParam()) ? std::optional<std::int64_t>{ 8 } : std::nullopt;
    policy.precision.reset();
    const Time now = start_of_traces;
    const LimitCheck check{ "key", policy, 1, false, {} };
    for (const std::string& text :
         { std::string("1e3"), std::string("9223372036854775807"), std::string(18, 'x'),
           std::string(20, 'x'), std::string(28, 'x'), std::string(40, 'x') + "sl",
           std::string(50, '\0') + "sb", std::string(31, '\0') }) {
        caller_.number({ "SET", "key", text });
        const auto first = caller_.check_together(digest, { &check, 1 }, microseconds{ now });
        const auto second_one = caller_.check_together(digest, { &check, 1 }, microseconds{ now });
        ASSERT_TRUE(first.at(0) && second_one.at(0)) << text;
        EXPECT_TRUE(first[0]->granted) << text;
        EXPECT_EQ(first[0]->remaining, policy.limit() - 1) << text;
        EXPECT_EQ(second_one[0]->remaining, policy.limit() - 2) << text;
    }
}

/// Its trailer claims 16 million missing entries, after which a request would append.
TEST_P(ForeignValue, with_a_false_entry_count_allocates_no_memory)
{
    const auto digest = caller_.load_with_clock(single_script(GetParam()));
    const auto peak = [this] {
        const std::string text = server_.ask({ "INFO", "memory" });
        const std::string name = "used_memory_peak:";
        return std::stoll(text.substr(text.find(name) + name.size()));
    };
    Policy policy{ GetParam(), { 1'000'000'000, microseconds{ 10 * second } }, {}, {} };
    const Time now = start_of_traces;
    const auto recent = big_endian(now - second, 7);
    const auto counts = big_endian(1U << 24U, 4) + big_endian(0, 4);
    const LimitCheck check{ "key", policy, 1, false, {} };
    for (const std::string& text : { recent + counts + recent + big_endian(now + day, 7) + "sl",
                                     recent + big_endian(1, 6) + counts + recent + big_endian(0, 6)
                                         + big_endian(now + day, 7) + "sb" }) {
        caller_.number({ "SET", "key", text });
        const auto before = peak();
        const auto answer = caller_.check_together(digest, { &check, 1 }, microseconds{ now });
        ASSERT_TRUE(answer.at(0));
        EXPECT_EQ(answer[0]->remaining, policy.limit() - 1);
        EXPECT_LT(peak() - before, 1'000'000);
    }
}

/// Redis takes tens of milliseconds to copy a value of 64 MB, and serves nothing meanwhile.
TEST_P(ForeignValue, of_64_megabytes_is_not_read_whole)
{
    const auto several = caller_.load(several_script(std::array{ GetParam() }));
    const auto refund = caller_.load(refund_script());
    const Policy policy{ GetParam(), { 9, microseconds{ 10 * second } }, {}, {} };
    const Time now = start_of_traces;
    const LimitCheck peek{ "key", policy, 0, false, microseconds{ now } };
    // The fastest of some calls: other processes use this machine too.
    const auto fastest = [&](std::string_view size) {
        caller_.number({ "SETRANGE", "key", size, "x" });
        auto least = std::chrono::nanoseconds::max();
        for (int round = 0; round < 10; ++round) {
            const auto start = std::chrono::steady_clock::now();
            EXPECT_TRUE(caller_.check(several, { &peek, 1 }, true).states.at(0).granted);
            caller_.refund(refund, { peek, { .granted = true } }, 0, microseconds{ now });
            least = std::min(least, std::chrono::steady_clock::now() - start);
        }
        return least;
    };
    const auto small = fastest("100");
    const auto giant = fastest("64000000");
    EXPECT_LT(giant, small + std::chrono::milliseconds{ 10 });
    EXPECT_EQ(caller_.number({ "STRLEN", "key" }), 64'000'001)
        << "a peek and a refund write nothing";

    const auto single = caller_.load_with_clock(single_script(GetParam()));
    const LimitCheck check{ "key", policy, 1, false, {} };
    EXPECT_EQ(
        caller_.check_together(single, { &check, 1 }, microseconds{ now }).at(0)->remaining,
        policy.limit() - 1);
    EXPECT_LT(caller_.number({ "STRLEN", "key" }), 100) << "an admitted request overwrites it";
}

INSTANTIATE_TEST_SUITE_P(
    Algorithms, ForeignValue,
    testing::Values(
        Algorithm::fixed_window, Algorithm::sliding_window_counter, Algorithm::sliding_window_log,
        Algorithm::sliding_window_buckets, Algorithm::token_bucket, Algorithm::gcra),
    by_name);

class ForeignArrivalTime : public ForeignValue {
protected:
    static constexpr Time now = start_of_traces;
    static constexpr Time year = 365 * day;

    void set_state(Time arrival, Time counted)
    {
        const auto text = big_endian(static_cast<std::uint64_t>(arrival), 7) + big_endian(0, 4)
            + big_endian(static_cast<std::uint64_t>(counted), 7);
        caller_.number({ "SET", "key", text });
    }
    void expect_no_state()
    {
        const LimitCheck peek{ "key", policy_, 0, false, microseconds{ now } };
        EXPECT_EQ(caller_.check(several_, { &peek, 1 }, true).states.at(0).remaining, 10);
        caller_.number({ "PERSIST", "key" });
        const LimitCheck check{ "key", policy_, 1, false, microseconds{ now } };
        EXPECT_EQ(caller_.check(several_, { &check, 1 }, true).states.at(0).remaining, 9);
    }

    const std::string several_ = caller_.load(several_script(std::array{ GetParam() }));
    const Policy policy_{ GetParam(),
                          { 10, microseconds{ 10 * second } },
                          GetParam() == Algorithm::token_bucket ? 10 : 9,
                          {} };
};

TEST_P(ForeignArrivalTime, further_ahead_than_any_policy_allows_is_ignored)
{
    for (const Time counted : { now, now - day, now + second }) {
        set_state(std::max(now, counted) + longest_refill.count() + 1, counted);
        caller_.number({ "EXPIRE", "key", "1000000" });
        expect_no_state();
    }
}

TEST_P(ForeignArrivalTime, far_in_the_future_is_ignored_even_if_the_key_never_expires)
{
    for (const Time counted : { now, now - day, now + second, now + 50 * year }) {
        set_state(counted + 100 * year, counted);
        expect_no_state();
    }
}

/// The counterpart: a state that a larger burst of the same key made.
TEST_P(ForeignArrivalTime, of_another_policy_is_kept)
{
    Policy other = policy_;
    other.burst = 3'000;
    const LimitCheck large{ "key", other, 3'000, false, microseconds{ now } };
    EXPECT_TRUE(caller_.check(several_, { &large, 1 }, true).states.at(0).granted);
    const LimitCheck check{ "key", policy_, 1, false, microseconds{ now } };
    const auto state = caller_.check(several_, { &check, 1 }, true).states.at(0);
    EXPECT_FALSE(state.granted);
    EXPECT_EQ(state.reset, microseconds{ 3'000 * second });
    EXPECT_EQ(state.retry_after, microseconds{ 2'991 * second });
}

INSTANTIATE_TEST_SUITE_P(
    ArrivalTimes, ForeignArrivalTime,
    testing::Values(Algorithm::token_bucket, Algorithm::leaky_bucket, Algorithm::gcra), by_name);

}  // namespace
}  // namespace ratelimit
