// The scripts in a Lua with 64-bit integers, as in some servers that speak Redis's protocol, beside
// a real Redis over the same random traces: every reply is the same, even with the largest numbers.

#include "check/script_text.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

/// A process of lua54.lua, which acts as Redis until its socket is closed.
class LuaProcess {
public:
    LuaProcess()
    {
        std::array<int, 2> sockets{};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()), 0);
        socket_ = sockets[0];
        pid_ = fork();
        if (pid_ == 0) {
            dup2(sockets[1], STDIN_FILENO);
            dup2(sockets[1], STDOUT_FILENO);
            execlp("lua5.4", "lua5.4", LUA54_SERVER, nullptr);
            _exit(127);
        }
        close(sockets[1]);
    }
    ~LuaProcess() { waitpid(pid_, nullptr, 0); }
    LuaProcess(const LuaProcess&) = delete;
    LuaProcess& operator=(const LuaProcess&) = delete;

    int socket() const { return socket_; }

private:
    int socket_ = -1;
    pid_t pid_ = -1;
};

class Lua54Trace : public testing::Test, protected TraceMaker {
protected:
    Policy any_large_policy(Algorithm algorithm)
    {
        Policy policy = any_policy(algorithm);
        const bool log = algorithm == Algorithm::sliding_window_log;
        if (!log && any(0, 1) == 0) {
            policy.rate.quota =
                any_of<std::int64_t>({ 999'999'937, 1'000'000'000, any(1, 1'000'000'000) });
            policy.rate.window = microseconds{ any_of<Time>({ day, 30 * day, 366 * day }) };
            if (keeps_arrival_time(algorithm)) {
                policy.burst = any_of<std::int64_t>({ 5, 999'999'999 });
            }
        }
        if (algorithm == Algorithm::sliding_window_buckets) {
            policy.precision = policy.rate.window / any(1, 60) / second * second;
        }
        policy.block = microseconds{ any_of<Time>({ 0, 0, any(1, 3) * second }) };
        return policy;
    }
    std::int64_t any_moderate_cost(const Policy& policy)
    {
        const bool log = policy.algorithm == Algorithm::sliding_window_log;
        const auto limit = std::min<std::int64_t>(policy.limit(), log ? 100 : 1'000'000'000);
        return any_of<std::int64_t>({ 1, 1, 0, 2, any(1, limit), limit + 1 });
    }
    /// Of one request with a key for each algorithm.
    std::vector<LimitCheck> any_checks(Time now)
    {
        std::vector<LimitCheck> checks;
        for (auto left = any(1, 4); left > 0; --left) {
            const auto algorithm = rate_algorithms[static_cast<std::size_t>(any(0, 6))];
            if (checks.empty() || checks.back().policy.algorithm < algorithm) {
                const Policy policy = any_large_policy(algorithm);
                checks.push_back({ name_of(algorithm), policy, any_moderate_cost(policy),
                                   any(0, 4) == 0, microseconds{ now }, nullptr, "block" });
            }
        }
        return checks;
    }
    Time any_step(const Policy& policy)
    {
        const Time window = policy.rate.window.count();
        return any_of<Time>({ 0, 1, any(0, second), any(0, window), window, -any(0, window / 3),
                              -window, any(0, 9) == 0 ? -2 * window : 1 });
    }

    /// Sometimes, that the key of all blocks is blocked, or that it was blocked without a cause.
    void state_block(const LimitCheck& check)
    {
        const microseconds at = *check.now - any(0, 2) * std::chrono::seconds{ 1 };
        const bool lifts = any(0, 2) == 0;
        const BlockStatement statement{ at, lifts ? microseconds{ second } : at,
                                        lifts ? microseconds{ 0 } : at + check.policy.block };
        if (check.policy.block.count() > 0 && any(0, 3) == 0) {
            ASSERT_EQ(
                lua_.state_block(lua_.load(block_script()), check, statement),
                redis_.state_block(redis_.load(block_script()), check, statement));
        }
    }

    RedisServer server_;
    TraceCaller redis_{ server_.port() };
    LuaProcess process_;
    TraceCaller lua_ = TraceCaller::on_socket(process_.socket());
};

TEST_F(Lua54Trace, one_limit_is_decided_as_in_redis)
{
    for (const Algorithm algorithm : rate_algorithms) {
        Time now = 1'800'000'000 * second + any(0, day);
        const std::string key(name_of(algorithm));
        for (int step = 0; step < from_environment("TRACE_STEPS", 12'000) / 12; ++step) {
            const Policy policy = any_large_policy(algorithm);
            const LimitCheck check{
                key, policy, any_moderate_cost(policy), false, microseconds{ now }, nullptr, "block"
            };
            state_block(check);
            SCOPED_TRACE(where(0, step, check));
            const auto script = single_script(algorithm, policy.block.count() > 0);
            const std::array digests = { redis_.load_with_clock(script),
                                         lua_.load_with_clock(script) };
            const auto expected = redis_.check_by_redis_clock(digests[0], check);
            const auto actual = lua_.check_by_redis_clock(digests[1], check);
            ASSERT_EQ(actual.states.size(), 1U);
            ASSERT_EQ(text_of(actual.states[0]), text_of(expected.states.at(0)));
            ASSERT_EQ(actual.lives.at(0).life, expected.lives.at(0).life);
            if (any(0, 30) == 0) {
                redis_.number({ "DEL", key });
                lua_.number({ "DEL", key });
            }
            now += any_step(policy);
        }
    }
}

TEST_F(Lua54Trace, several_limits_are_decided_and_refunded_as_in_redis)
{
    const std::array several = { redis_.load(several_script(all_algorithms)),
                                 lua_.load(several_script(all_algorithms)) };
    const std::array peek = { redis_.load(peek_script(all_algorithms)),
                              lua_.load(peek_script(all_algorithms)) };
    const std::array refund = { redis_.load(refund_script()), lua_.load(refund_script()) };
    Time now = 1'800'000'000 * second + any(0, day);
    for (int step = 0; step < from_environment("TRACE_STEPS", 12'000) / 6; ++step) {
        const auto checks = any_checks(now);
        std::vector<std::int64_t> runs;
        for (auto left = any(1, 2); left > 0; --left) {
            runs.push_back(any(1, 3));
            for (const LimitCheck& check : checks) {
                runs.push_back(any_moderate_cost(check.policy));
            }
        }
        SCOPED_TRACE(where(0, step, checks.front()));
        state_block(checks.front());
        for (const auto& digests : { peek, several, peek }) {
            const auto expected = redis_.check_runs(digests[0], checks, runs);
            ASSERT_FALSE(expected.empty());
            ASSERT_EQ(lua_.check_runs(digests[1], checks, runs), expected);
        }
        if (any(0, 1) == 0) {
            const auto taken = redis_.check(several[0], checks, true);
            ASSERT_EQ(lua_.check(several[1], checks, true).states, taken.states);
            for (std::size_t i = 0; i < checks.size(); ++i) {
                if (checks[i].cost > 0 && taken.states.at(i).granted) {
                    redis_.refund(refund[0], checks[i], microseconds{ now }, taken.states[i]);
                    lua_.refund(refund[1], checks[i], microseconds{ now }, taken.states[i]);
                }
            }
        }
        now += any_step(checks.front().policy);
    }
}

TEST_F(Lua54Trace, sequences_of_limits_are_decided_as_in_redis)
{
    Time now = 1'800'000'000 * second + any(0, day);
    for (int step = 0; step < from_environment("TRACE_STEPS", 12'000) / 12; ++step) {
        const auto request = any_checks(now);
        std::vector<SequenceLimit> sequence;
        for (const LimitCheck& check : request) {
            sequence.push_back(
                { check.policy.algorithm, check.shadow, check.policy.block.count() > 0 });
        }
        auto checks = request;
        for (auto more = any(0, 2); more > 0; --more) {
            for (LimitCheck check : request) {
                check.cost = any_moderate_cost(check.policy);
                checks.push_back(check);
            }
        }
        SCOPED_TRACE(where(0, step, checks.front()));
        state_block(checks.front());
        const bool refundable = any(0, 1) == 0;
        const auto script = sequence_script(sequence, refundable);
        const auto expected =
            redis_.check_sequence(redis_.load(script), checks, refundable, request.size());
        const auto actual =
            lua_.check_sequence(lua_.load(script), checks, refundable, request.size());
        ASSERT_EQ(expected.size(), checks.size());
        ASSERT_EQ(actual.size(), checks.size());
        for (std::size_t i = 0; i < checks.size(); ++i) {
            ASSERT_EQ(text_of(actual[i].state), text_of(expected[i].state)) << i;
            ASSERT_EQ(actual[i].reset_before, expected[i].reset_before) << i;
        }
        now += any_step(checks.front().policy);
    }
}

}  // namespace
}  // namespace ratelimit
