// Several requests in one call of several_script, against the same requests in calls of their own:
// each gets the same verdicts, and the state in Redis is the same.

#include "check/script_text.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class BatchTrace : public testing::Test, protected TraceMaker {
protected:
    struct Limit {
        Policy policy;
        bool shadow = false;
        std::string together;  // the key of the batched requests
        std::string apart;     // the key of the single requests
        std::string block;     // of both
    };

    void begin(int trace, std::size_t limits, Algorithm algorithm)
    {
        limits_.clear();
        for (std::size_t i = 0; i < limits; ++i) {
            Limit& limit = limits_.emplace_back();
            limit.policy = any_blocking_policy(
                i == 0 ? algorithm : rate_algorithms[static_cast<std::size_t>(any(0, 6))]);
            limit.shadow = any(0, 3) == 0;
            const auto name = std::to_string(trace) + "." + std::to_string(i) + "}";
            limit.together = "together:{" + name;
            limit.apart = "apart:{" + name;
            limit.block = "block:{" + name;
        }
        now_ = start_of_traces + any(0, day);
    }

    std::vector<LimitCheck> checks(bool together) const
    {
        std::vector<LimitCheck> checks;
        for (const Limit& limit : limits_) {
            checks.push_back({ together ? limit.together : limit.apart, limit.policy, 0,
                               limit.shadow, microseconds{ now_ }, nullptr, limit.block });
        }
        return checks;
    }

    std::vector<std::int64_t> any_runs()
    {
        std::vector<std::int64_t> runs;
        for (auto left = any_of<std::int64_t>({ 1, 1, 2, 3 }); left > 0; --left) {
            runs.push_back(any_of<std::int64_t>({ 1, 2, 3, 5, any(1, 40) }));
            for (const Limit& limit : limits_) {
                runs.push_back(any(0, 2) != 0 ? 1 : any_cost(limit.policy));
            }
        }
        return runs;
    }

    /// Sends each request of the runs in a call of its own.
    std::vector<std::vector<Verdict>> one_by_one(const std::vector<std::int64_t>& runs)
    {
        std::vector<std::vector<Verdict>> verdicts;
        auto alone = checks(false);
        for (std::size_t at = 0; at < runs.size(); at += 1 + limits_.size()) {
            for (std::size_t i = 0; i < limits_.size(); ++i) {
                alone[i].cost = runs[at + 1 + i];
            }
            for (std::int64_t request = 0; request < runs[at]; ++request) {
                verdicts.push_back(caller_.check(several_, alone, true).states);
            }
        }
        return verdicts;
    }

    Verdict step()
    {
        const auto runs = any_runs();
        const auto alone = one_by_one(runs);
        const auto batch = caller_.check_runs(several_, checks(true), runs);
        EXPECT_EQ(batch.size(), alone.size());
        for (std::size_t request = 0; request < alone.size() && !HasFailure(); ++request) {
            for (std::size_t i = 0; i < limits_.size(); ++i) {
                EXPECT_EQ(text_of(batch[request][i]), text_of(alone[request][i]))
                    << "request " << request << " of " << alone.size() << ", limit " << i
                    << (limits_[i].shadow ? ", shadow" : "");
            }
        }
        for (const LimitCheck& check : checks(true)) {
            if (check.policy.block.count() > 0 && any(0, 3) == 0) {
                caller_.state_block(
                    blocks_, check, { *check.now, *check.now, *check.now + check.policy.block });
            }
        }
        return alone.back().front();
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    const std::string several_ = caller_.load(several_script(all_algorithms));
    const std::string blocks_ = caller_.load(block_script());
    std::vector<Limit> limits_;
    Time now_ = 0;
};

TEST_F(BatchTrace, requests_of_one_call_get_the_verdicts_of_single_calls)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 12;
    for (int trace = 0; trace < traces && !HasFailure(); ++trace) {
        const auto limits = any_of<std::size_t>({ 1, 1, 2, 3 });
        begin(trace, limits, rate_algorithms[static_cast<std::size_t>(trace) % 7]);
        for (int step_number = 0; step_number < 12 && !HasFailure(); ++step_number) {
            for (Limit& limit : limits_) {
                if (any(0, 2) == 0) {
                    change_policy(limit.policy);
                }
            }
            SCOPED_TRACE(
                "trace " + std::to_string(trace) + ", step " + std::to_string(step_number) + ": "
                + text_of_limits(limits_));
            const Verdict last = step();
            now_ = any_later(limits_.front().policy, now_, last);
        }
        for (const Limit& limit : limits_) {
            caller_.number({ "DEL", limit.together, limit.apart, limit.block });
        }
    }
}

}  // namespace
}  // namespace ratelimit
