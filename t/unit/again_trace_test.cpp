// A call whose connection was lost is sent again: Redis may have executed it, and other calls came
// in between. Real scripts in Redis, every order of loss and execution: what passed before passes
// again, what passes beyond the limit is at most one call, and a call that was not executed counts.

#include "check/script_text.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::chrono_literals;
using Time = Model::Time;
using Verdicts = std::vector<std::vector<Verdict>>;  // by request and limit

class AgainTrace : public testing::Test, protected TraceMaker {
protected:
    struct Limit {
        std::string key;
        Policy policy;
        bool shadow = false;
    };

    void begin(int trace)
    {
        server_.ask({ "FLUSHALL" });
        limits_.clear();
        for (auto left = any_of<std::int64_t>({ 1, 1, 2, 3 }); left > 0; --left) {
            Limit& limit = limits_.emplace_back();
            limit.policy = any_policy(rate_algorithms[static_cast<std::size_t>(any(0, 6))]);
            limit.policy.reserve = any_of<std::int64_t>({ 0, 0, any(0, limit.policy.whole() - 1) });
            limit.shadow = limits_.size() > 1 && any(0, 3) == 0;
            limit.key = std::to_string(trace) + "." + std::to_string(limits_.size());
        }
        now_ = start_of_traces + any(0, day);
    }

    std::vector<LimitCheck> checks() const
    {
        std::vector<LimitCheck> checks;
        for (const Limit& limit : limits_) {
            checks.push_back({ limit.key, limit.policy, 1, limit.shadow, microseconds{ now_ } });
        }
        return checks;
    }

    /// The numbers of a run of requests of one cost.
    std::vector<std::int64_t> run_of(std::int64_t requests, std::int64_t cost) const
    {
        std::vector<std::int64_t> run(1 + limits_.size(), cost);
        run.front() = requests;
        return run;
    }
    Verdicts execute(const std::vector<std::int64_t>& runs)
    {
        return caller_.check_runs(several_, checks(), runs);
    }
    static std::vector<std::int64_t> again(std::vector<std::int64_t> runs)
    {
        runs.push_back(1000);  // the age of the call
        return runs;
    }

    bool passes(const std::vector<Verdict>& states) const
    {
        bool passes = true;
        for (std::size_t i = 0; i < states.size(); ++i) {
            passes = passes && (limits_[i].shadow || states[i].granted);
        }
        return passes;
    }
    std::int64_t passed(const Verdicts& requests) const
    {
        return std::count_if(requests.begin(), requests.end(), [this](const auto& states) {
            return passes(states);
        });
    }

    std::vector<std::string> values()
    {
        std::vector<std::string> values;
        for (const Limit& limit : limits_) {
            values.push_back(server_.ask({ "GET", limit.key }));
        }
        return values;
    }
    /// The most that a limit that enforces lets through of an empty key.
    std::int64_t most(std::int64_t cost) const
    {
        std::int64_t most = std::numeric_limits<std::int64_t>::max();
        for (const Limit& limit : limits_) {
            most = limit.shadow ? most : std::min(most, limit.policy.limit() / cost);
        }
        return most;
    }
    std::int64_t any_requests() { return any_of<std::int64_t>({ 1, 1, 1, 2, 5, any(1, 100) }); }
    std::int64_t any_run_cost()
    {
        return any_of<std::int64_t>({ 1, 1, 2, any(1, limits_.front().policy.limit()) });
    }
    /// Others ask for the key: the limits then have anything left, from nothing to all.
    void others_ask()
    {
        for (auto left = any(0, 2); left > 0; --left) {
            execute(run_of(any_of<std::int64_t>({ 1, 2, any(1, 100), 1000 }), any_run_cost()));
        }
        now_ += any_of<Time>({ 0, 0, 1, any(0, second / 10) });
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    const std::string several_ = caller_.load(several_script(all_algorithms));
    std::vector<Limit> limits_;
    Time now_ = 0;
};

TEST_F(AgainTrace, what_passed_before_the_connection_was_lost_passes_again)
{
    const auto traces = from_environment("TRACES", 1500);
    for (int trace = 0; trace < traces && !HasFailure(); ++trace) {
        begin(trace);
        SCOPED_TRACE(text_of_limits(limits_) + "seed " + std::to_string(seed_));
        others_ask();
        const auto run = run_of(any_requests(), any_run_cost());
        const Verdicts first = execute(run);  // its reply is lost
        others_ask();
        const Verdicts second = execute(again(run));
        ASSERT_EQ(first.size(), second.size());
        EXPECT_GE(passed(second), passed(first)) << "nobody who passed is refused";
        EXPECT_LE(passed(second), most(run.back())) << "and no more than fit in an empty key";
    }
}

TEST_F(AgainTrace, a_call_that_was_not_executed_is_counted_as_far_as_it_fits)
{
    const auto traces = from_environment("TRACES", 1500);
    for (int trace = 0; trace < traces && !HasFailure(); ++trace) {
        begin(trace);
        SCOPED_TRACE(text_of_limits(limits_) + "seed " + std::to_string(seed_));
        // The same twice: one call counts at once, one is sent again.
        others_ask();
        const auto run = run_of(any_requests(), any_run_cost());
        const auto others = values();
        const Verdicts once = execute(run);
        const auto counted = values();
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            server_.ask({ "DEL", limits_[i].key });
            if (!others[i].empty()) {
                server_.ask({ "SET", limits_[i].key, others[i] });
            }
        }
        const Verdicts sent_again = execute(again(run));
        EXPECT_EQ(values(), counted) << "counted as if it had not been sent before";
        EXPECT_GE(passed(sent_again), passed(once));
        EXPECT_LE(passed(sent_again), std::max(passed(once), most(run.back())));
    }
}

TEST_F(AgainTrace, the_only_request_of_a_key_that_it_uses_up_passes_and_shows_its_first_reply)
{
    for (const Algorithm algorithm : rate_algorithms) {
        SCOPED_TRACE(name_of(algorithm));
        limits_ = { { std::string(name_of(algorithm)), { algorithm, { 1, 60s }, {}, {} } } };
        if (keeps_arrival_time(algorithm)) {
            limits_.front().policy.burst = algorithm == Algorithm::token_bucket ? 1 : 0;
        }
        now_ = start_of_traces;
        const auto run = run_of(1, 1);
        const Verdicts first = execute(run);
        const auto counted = values();
        const Verdicts second = execute(again(run));
        EXPECT_TRUE(passes(second.front()));
        EXPECT_EQ(text_of(second.front().front()), text_of(first.front().front()));
        EXPECT_EQ(values(), counted) << "not counted again";
        EXPECT_FALSE(passes(execute(run).front())) << "the next one is refused";
    }
}

TEST_F(AgainTrace, a_request_of_a_key_in_debt_is_refused)
{
    limits_ = { { "debt", { Algorithm::fixed_window, { 10, 60s }, {}, {} } } };
    now_ = start_of_traces;
    limits_.front().policy.rate.quota = 20;
    execute(run_of(11, 1));
    limits_.front().policy.rate.quota = 10;
    EXPECT_FALSE(passes(execute(again(run_of(1, 1))).front()));
}

TEST_F(AgainTrace, a_request_that_costs_more_than_the_limit_is_refused)
{
    limits_ = { { "large", { Algorithm::fixed_window, { 10, 60s }, {}, {} } } };
    now_ = start_of_traces;
    const Verdicts refused = execute(again(run_of(1, 11)));
    EXPECT_FALSE(passes(refused.front()));
    EXPECT_EQ(refused.front().front().retry_after, std::nullopt);
}

TEST_F(AgainTrace, of_a_call_with_several_costs_no_more_passes_than_fits_in_the_limit)
{
    limits_ = { { "costs", { Algorithm::fixed_window, { 10, 60s }, {}, {} } } };
    now_ = start_of_traces;
    execute(run_of(10, 1));
    std::vector<std::int64_t> runs;
    for (const std::int64_t cost : { 3, 4, 3, 4, 3 }) {
        runs.insert(runs.end(), { 1, cost });
    }
    const Verdicts verdicts = execute(again(runs));
    std::vector<bool> passed;
    for (const auto& states : verdicts) {
        passed.push_back(passes(states));
    }
    EXPECT_EQ(passed, (std::vector<bool>{ true, true, true, false, false }));
}

}  // namespace
}  // namespace ratelimit
