// Units of concurrency limits that are taken, renewed, released and lost, in random traces: in a
// real Redis and in memory, which must agree on every number, against the requests that hold them.

#include "check/script_text.h"
#include "local_limit.h"
#include "redis_server.h"
#include "trace_caller.h"
#include "trace_maker.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using Time = Model::Time;

constexpr Time start_of_traces = 1'800'000'000 * second;

class HeldTrace : public testing::Test, protected TraceMaker {
protected:
    /// A request that holds units, and knows where they are counted.
    struct Holder {
        Refund counted;
        Time since = 0;  // when they were taken or renewed
    };

    void begin(int trace)
    {
        key_ = "rl:test:{" + std::to_string(trace) + "}";
        policy_ = any_policy(Algorithm::concurrency);
        memory_ = {};
        holders_.clear();
        now_ = start_of_traces + any(0, day);
    }
    void end() { caller_.number({ "DEL", key_ }); }

    LimitCheck request(std::int64_t cost) const
    {
        return { key_, policy_, cost, false, microseconds{ now_ } };
    }
    Time hold() const { return policy_.rate.window.count(); }

    /// The same request in Redis and in memory.
    Verdict ask(std::int64_t cost)
    {
        const LimitCheck check = request(cost);
        const auto answer = caller_.check(single_, { &check, 1 });
        auto local = memory_.check(policy_, now_, cost);
        const Verdict state = commit(local, true);
        EXPECT_EQ(answer.states.size(), 1U);
        EXPECT_EQ(text_of(answer.states.at(0)), text_of(state));
        return state;
    }

    void take(std::int64_t cost)
    {
        const Verdict state = ask(cost);
        if (state.granted && cost > 0) {
            holders_.push_back({ { cost, microseconds{ now_ }, state.reset }, now_ });
        }
    }

    void release(const Holder& holder)
    {
        LimitCheck check = request(holder.counted.cost);
        caller_.refund(
            refund_, check, holder.counted.taken_at, { true, 0, holder.counted.reset, {} });
        subtract(holder);
    }
    /// As LocalLimiter does.
    void subtract(const Holder& holder)
    {
        ratelimit::refund(memory_.entries, memory_.total, policy_, holder.counted);
        if (memory_.total == 0) {
            memory_ = {};
        }
    }

    /// `lost`: the reply does not arrive, so the holder does not know.
    void renew(Holder& holder, bool lost)
    {
        LimitCheck check = request(holder.counted.cost);
        check.policy.rate.quota =
            (holder.counted.taken_at + holder.counted.reset - policy_.counted_for()).count();
        const auto replies = caller_.check_sequence(renew_, { &check, 1 }, true);
        subtract(holder);
        TimedCheck local(
            memory_.entries, memory_.total, policy_, microseconds{ now_ }, holder.counted.cost);
        local.charge();
        ASSERT_EQ(replies.size(), 1U);
        ASSERT_EQ(replies[0].state.reset, local.life());
        if (!lost) {
            holder.counted.taken_at = microseconds{ now_ };
            holder.counted.reset = local.life();
            holder.since = now_;
        }
    }

    Holder take_any()
    {
        const auto which = holders_.begin() + any(0, std::ssize(holders_) - 1);
        const Holder holder = *which;
        holders_.erase(which);
        return holder;
    }

    std::int64_t held() const
    {
        return std::accumulate(
            holders_.begin(), holders_.end(), std::int64_t{ 0 },
            [](std::int64_t sum, const Holder& holder) { return sum + holder.counted.cost; });
    }

    /// As a worker does, before `hold` has passed.
    void renew_old(bool replies_are_lost)
    {
        for (Holder& holder : holders_) {
            if (now_ - holder.since > hold() / 2) {
                renew(holder, replies_are_lost && any(0, 4) == 0);
            }
        }
    }

    void step()
    {
        const auto cost = any_of<std::int64_t>(
            { 1, 1, 1, any(0, 3), any(1, std::max<std::int64_t>(1, policy_.limit() / 3)) });
        if (!holders_.empty() && any(0, 2) == 0) {
            release(take_any());
        } else if (!holders_.empty() && any(0, 4) == 0) {
            renew(holders_[static_cast<std::size_t>(any(0, std::ssize(holders_) - 1))], false);
        } else {
            take(cost);
        }
    }

    RedisServer server_;
    TraceCaller caller_{ server_.port() };
    const std::string single_ = caller_.load(single_script(Algorithm::concurrency));
    const std::string renew_ = caller_.load(renew_script());
    const std::string refund_ = caller_.load(refund_script(Algorithm::concurrency));
    std::string key_;
    Policy policy_;
    LocalLimit memory_;
    std::vector<Holder> holders_;
    Time now_ = 0;
};

TEST_F(HeldTrace, what_is_renewed_in_time_and_released_is_counted_exactly)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 80;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        for (int i = 0; i < 80 && !HasFailure(); ++i) {
            SCOPED_TRACE(where(trace, i, request(0)));
            step();
            now_ += any_of<Time>({ 0, 1, any(0, hold() / 16), hold() / 8, hold() / 4 });
            renew_old(false);
            ASSERT_EQ(ask(0).remaining, policy_.limit() - held());
        }
        while (!holders_.empty()) {
            release(take_any());
        }
        ASSERT_EQ(caller_.number({ "EXISTS", key_ }), 0) << "no units are left";
        end();
    }
}

TEST_F(HeldTrace, losses_free_no_units_of_others_and_are_free_after_hold)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 80;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        for (int i = 0; i < 80 && !HasFailure(); ++i) {
            SCOPED_TRACE(where(trace, i, request(0)));
            step();
            if (!holders_.empty() && any(0, 5) == 0) {
                take_any();  // its release is lost, or its worker was killed
            }
            if (any(0, 9) == 0) {
                take(1);  // a check that is sent twice, and released once
                holders_.resize(holders_.size() - (holders_.empty() ? 0 : 1));
            }
            now_ += any_of<Time>({ 0, 1, any(0, hold() / 16), hold() / 8 });
            renew_old(true);
            ASSERT_LE(ask(0).remaining, std::max<Time>(0, policy_.limit() - held()));
        }
        holders_.clear();
        now_ += hold() + hold() / buckets_per_hold;
        EXPECT_EQ(ask(0).remaining, policy_.limit()) << "all is free after hold and a bucket";
        end();
    }
}

TEST_F(HeldTrace, a_clock_that_steps_back_frees_nothing)
{
    const auto traces = from_environment("TRACE_STEPS", 24'000) / 80;
    for (int trace = 0; trace < traces; ++trace) {
        begin(trace);
        for (int i = 0; i < 40 && !HasFailure(); ++i) {
            SCOPED_TRACE(where(trace, i, request(0)));
            step();
            Time by = any_of<Time>({ 0, 1, any(0, hold() / 16), hold() / 8 });
            if (any(0, 7) == 0) {
                by = -any_of<Time>({ 1, any(0, hold()), hold() + 1, any(0, 20 * hold()) });
                for (Holder& holder : holders_) {
                    holder.since += by;  // workers have another clock
                }
            }
            now_ += by;
            renew_old(false);
            ASSERT_LE(ask(0).remaining, std::max<Time>(0, policy_.limit() - held()));
        }
        end();
    }
}

TEST_F(HeldTrace, another_hold_keeps_what_is_held)
{
    for (int trace = 0; trace < 300; ++trace) {
        begin(trace);
        policy_.rate.quota = 100;
        for (int i = 0; i < 20; ++i) {
            take(any(1, 4));
            now_ += any(0, hold() / 40);
        }
        const auto units = held();
        policy_.rate.window = microseconds{ any(1, 7200) * second };
        const LimitCheck check = request(1);
        const auto answer = caller_.check(single_, { &check, 1 });
        SCOPED_TRACE(where(trace, 0, check));
        ASSERT_EQ(answer.states.at(0).remaining, 100 - units - 1);
        end();
    }
}

}  // namespace
}  // namespace ratelimit
