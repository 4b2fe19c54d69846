// Requests that the script of their sequence of limits decides, up to sixteen in one call, beside
// the same requests by several_script in a call each, and beside the model: every decision and
// number is the same, and so is what is left in Redis.

#include "check/script_text.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

class SequenceTrace : public testing::Test, protected TraceMaker {
protected:
    /// One of the keys of a limit, and the same for several_script.
    struct Key {
        std::string in_sequence;
        std::string in_several;
        std::string block;  // one for both scripts
        std::unique_ptr<Model> model;
    };
    struct Limit {
        Policy policy;
        bool shadow = false;
        std::deque<Key> keys;
    };
    /// A check of a request of the call, and the key that it is of.
    struct Asked {
        LimitCheck check;
        Key* key;
    };
    using AskedRequest = std::vector<Asked>;

    void begin(int trace)
    {
        server_.ask({ "FLUSHALL" });
        limits_.clear();
        std::vector<SequenceLimit> sequence;
        for (auto left = any(1, 4); left > 0; --left) {
            Limit& limit = limits_.emplace_back();
            const auto algorithm = rate_algorithms[static_cast<std::size_t>(any(0, 6))];
            limit.policy = any_blocking_policy(algorithm);
            limit.shadow = any(0, 3) == 0;
            for (auto key = any(1, 3); key > 0; --key) {
                const auto name = std::to_string(trace) + "." + std::to_string(limits_.size()) + "."
                    + std::to_string(key);
                limit.keys.push_back({ "sequence:" + name, "several:" + name, "block:" + name,
                                       Model::of(algorithm) });
            }
            sequence.push_back({ algorithm, limit.shadow, limit.policy.block.count() > 0 });
        }
        digest_ = caller_.load(sequence_script(sequence));
        now_ = start_of_traces + any(0, day);
    }

    AskedRequest any_request()
    {
        AskedRequest request;
        for (Limit& limit : limits_) {
            Key& key = limit.keys[static_cast<std::size_t>(any(0, std::ssize(limit.keys) - 1))];
            request.push_back({ { key.in_sequence, limit.policy, any_cost(limit.policy),
                                  limit.shadow, microseconds{ now_ }, nullptr, key.block },
                                &key });
        }
        return request;
    }

    struct Expected {
        Verdict state;
        bool taken;
    };
    /// What the model says, which counts the request.
    std::vector<Expected> by_model(const AskedRequest& request)
    {
        std::vector<Time> times(request.size(), now_);
        std::vector<bool> granted;
        bool admitted = true;
        for (std::size_t i = 0; i < request.size(); ++i) {
            const auto& [check, key] = request[i];
            granted.push_back(key->model->grants(check.policy, times[i], check.cost));
            admitted = admitted && (granted[i] || check.shadow);
        }
        std::vector<Expected> expected;
        for (std::size_t i = 0; i < request.size(); ++i) {
            const auto& [check, key] = request[i];
            const bool take = admitted && granted[i] && check.cost > 0;
            expected.push_back(
                { key->model->commit(check.policy, times[i], check.cost, granted[i], take), take });
        }
        return expected;
    }

    TraceCaller::Answer by_several(const AskedRequest& request)
    {
        std::vector<LimitCheck> checks;
        for (const auto& [check, key] : request) {
            checks.push_back(check);
            checks.back().redis_key = key->in_several;
        }
        return caller_.check(several_, checks, true);
    }

    static Verdict verdict_on(const LimitCheck& check, const KeyReply& reply)
    {
        Verdict verdict = verdict_of(reply);
        apply_block(verdict, rest_of_block(reply.blocked, check.policy));
        return verdict;
    }

    /// One call. Returns the last verdict.
    Verdict step()
    {
        std::vector<AskedRequest> requests;
        std::vector<LimitCheck> checks;
        for (auto left = any_of<std::int64_t>({ 1, 1, 2, 3, 16 }); left > 0; --left) {
            for (const Asked& asked : requests.emplace_back(any_request())) {
                checks.push_back(asked.check);
            }
        }
        const auto replies = caller_.check_sequence(digest_, checks, limits_.size());
        EXPECT_EQ(replies.size(), checks.size());
        for (std::size_t i = 0; i < requests.size() && !HasFailure(); ++i) {
            const auto expected = by_model(requests[i]);
            const auto several = by_several(requests[i]);
            for (std::size_t limit = 0; limit < expected.size(); ++limit) {
                const KeyReply& reply = replies[i * limits_.size() + limit];
                const auto [state, taken] = expected[limit];
                SCOPED_TRACE(
                    "request " + std::to_string(i) + " of " + std::to_string(requests.size())
                    + ", limit " + std::to_string(limit));
                const Verdict verdict = verdict_on(checks[i * limits_.size() + limit], reply);
                EXPECT_EQ(text_of(verdict), text_of(state));
                EXPECT_EQ(text_of(verdict), text_of(several.states.at(limit)));
                if (taken) {
                    EXPECT_EQ(reply.reset_before, several.without.at(limit).reset);
                }
            }
        }
        begin_blocks(checks, replies);
        return replies.empty() ? Verdict{} : verdict_on(checks.back(), replies.back());
    }

    /// Some of the keys that were refused are blocked.
    void begin_blocks(const std::vector<LimitCheck>& checks, const std::vector<KeyReply>& replies)
    {
        for (std::size_t i = 0; i < replies.size(); ++i) {
            const LimitCheck& check = checks[i];
            if (!replies[i].admits_next && check.policy.block.count() > 0 && any(0, 3) == 0) {
                const BlockStatement statement{ *check.now, *check.now,
                                                *check.now + check.policy.block };
                for (Key& key : limits_[i % limits_.size()].keys) {
                    if (key.block == check.block_key) {
                        EXPECT_EQ(
                            caller_.state_block(blocks_, check, statement),
                            key.model->begin_block(check.policy, now_, now_, now_));
                    }
                }
            }
        }
    }

    void expect_equal_states()
    {
        for (const Limit& limit : limits_) {
            for (const Key& key : limit.keys) {
                ASSERT_EQ(
                    server_.ask({ "GET", key.in_sequence }), server_.ask({ "GET", key.in_several }))
                    << key.in_sequence;
            }
        }
    }

    RedisServer server_;
    TraceCaller caller_{ server_ };
    const std::string several_ = caller_.load(several_script(all_algorithms));
    const std::string blocks_ = caller_.load(block_script());
    std::string digest_;
    std::deque<Limit> limits_;
    Time now_ = 0;
};

TEST_F(SequenceTrace, a_request_is_counted_in_all_its_limits_or_in_none_after_those_before_it)
{
    const auto traces = from_environment("TRACE_STEPS", 12'000) / 40;
    for (int trace = 0; trace < traces && !HasFailure(); ++trace) {
        begin(trace);
        const auto rarity = any_rarity();
        for (int number = 0; number < 20 && !HasFailure(); ++number) {
            for (Limit& limit : limits_) {
                if (any(1, rarity) == 1) {
                    change_policy(limit.policy);
                }
            }
            SCOPED_TRACE(
                "TRACE_SEED " + std::to_string(seed_) + ", trace " + std::to_string(trace)
                + ", step " + std::to_string(number) + ": " + text_of_limits(limits_));
            const Verdict last = step();
            now_ = any_later(limits_.back().policy, now_, last);
        }
        expect_equal_states();
    }
}

}  // namespace
}  // namespace ratelimit
