// Decisions of limits whose keys are blocked after a refusal (Policy::block).

#include "decision_fixture.h"

namespace ratelimit {
namespace {

class Blocks : public DecisionTest {
protected:
    /// Registers the scripts before a client is made. In this order, what is sent in one turn
    /// leaves as statements about blocks, checks of limits with a block, and refunds.
    void SetUp() override
    {
        scripts_.add(block_script());
        for (const Algorithm algorithm : all_algorithms) {
            const SequenceLimit limit{ algorithm, false, true };
            scripts_.add(sequence_script({ &limit, 1 }));
        }
        DecisionTest::SetUp();
    }

    /// A zone of `quota` requests a day, whose refusals begin a block of 100 seconds.
    KeyedZone& blocking_zone(
        std::int64_t quota, Coalescer* in, Algorithm algorithm = Algorithm::fixed_window)
    {
        KeyedZone& made = zone(quota, in, algorithm);
        made.zone.policy.block = 100s;
        made.block_key = made.redis_key + ":block";
        const SequenceLimit limit{ algorithm, false, true };
        made.sequences.emplace(std::span{ &limit, 1 }, scripts_);
        return made;
    }
    KeyedZone& blocking_zone(std::int64_t quota) { return blocking_zone(quota, &redis()); }

    /// What is left of the key's block in Redis, once all that was sent has arrived there.
    microseconds block_in_redis(KeyedZone& in)
    {
        EXPECT_TRUE(loop_.run_until([&] { return in.coalescer->idle(); }));
        for (int i = 0; i < 3; ++i) {
            decide({ { in, 0 } });
        }
        return decide({ { in, 0 } }).limits[0].state.blocked;
    }
    static std::uint64_t begun(KeyedZone& in)
    {
        return in.memory.memory().counters().sum(ZoneCounters::Units::blocked);
    }
};

TEST_F(Blocks, are_remembered_for_every_cost)
{
    for (const Algorithm algorithm : { Algorithm::fixed_window, Algorithm::gcra }) {
        KeyedZone& in = blocking_zone(9, &redis(), algorithm);
        in.zone.policy.burst = algorithm == Algorithm::gcra ? std::optional{ 8 } : std::nullopt;
        in.zone.policy.rate.window = 90s;
        EXPECT_TRUE(decide({ { in, 9 } }).granted());
        const DecidedRequest& first = decide({ { in, 1 } });
        EXPECT_EQ(first.source(), Source::redis);
        EXPECT_EQ(first.limits[0].state.blocked, 100s);
        EXPECT_EQ(first.decision.outcome().retry_after, 100s);
        EXPECT_EQ(block_in_redis(in), 100s);
        EXPECT_EQ(begun(in), 1U);
        now += 3s;
        for (const std::int64_t cost : { 1, 5, 9 }) {
            const DecidedRequest& next = decide({ { in, cost } });
            EXPECT_EQ(next.source(), Source::cache) << cost;
            EXPECT_EQ(next.limits[0].state.blocked, 97s) << cost;
            EXPECT_EQ(next.retry_after(), 97s) << cost;
        }
        EXPECT_EQ(decide({ { in, 10 } }).retry_after(), std::nullopt) << "would never pass";
        const DecidedRequest& peek = decide({ { in, 0 } });
        EXPECT_EQ(peek.source(), Source::redis);
        EXPECT_EQ(peek.limits[0].state.blocked, 97s);
        now += 62s;
        EXPECT_EQ(decide(in).source(), Source::redis) << "after five seconds at most";
        EXPECT_EQ(decide(in).limits[0].state.blocked, 35s);
        now += 35s;
        EXPECT_TRUE(decide(in).granted());
        EXPECT_EQ(begun(in), 1U);
    }
}

TEST_F(Blocks, do_not_begin_because_of_a_reserve)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& in = blocking_zone(10, place);
        const auto passed = [&](std::int64_t reserve, int times) {
            in.zone.policy.reserve = reserve;
            int count = 0;
            for (int i = 0; i < times; ++i) {
                count += decide(in).granted() ? 1 : 0;
            }
            return count;
        };
        EXPECT_EQ(passed(6, 6), 4);
        EXPECT_EQ(passed(0, 6), 6) << "the key is not blocked";
        EXPECT_EQ(begun(in), 0U);
        EXPECT_EQ(passed(0, 1), 0);
        EXPECT_TRUE(loop_.run_until([&] { return begun(in) == 1; }));
        in.zone.policy.reserve = 6;
        EXPECT_EQ(decide(in).limits[0].state.blocked, 100s) << "a block is the key's";
    }
}

TEST_F(Blocks, end_no_earlier_than_the_counts_admit_a_request)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& in = blocking_zone(1, place, Algorithm::gcra);
        EXPECT_TRUE(decide(in).granted());
        EXPECT_EQ(decide(in).retry_after(), 24h) << "the counts refuse for longer";
        now += 100s;
        const DecidedRequest& refused = decide(in);
        EXPECT_EQ(refused.result(), Result::rejected);
        EXPECT_EQ(refused.retry_after(), 24h - 100s);
        now += 24h - 100s - 1us;
        EXPECT_EQ(decide(in).result(), Result::rejected);
        now += 100s;
        EXPECT_TRUE(decide(in).granted());
    }
}

TEST_F(Blocks, begin_only_for_keys_whose_own_limit_refuses)
{
    Coalescer& other = redis_at(server->port());
    for (Coalescer* place : { &redis(), &other, static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& wide = blocking_zone(9);
        KeyedZone& narrow = blocking_zone(1, place);
        EXPECT_EQ(decide({ { wide }, { narrow } }).result(), Result::passed);
        const DecidedRequest& refused = decide({ { wide }, { narrow } });
        EXPECT_EQ(refused.result(), Result::rejected);
        EXPECT_EQ(refused.limits[0].state.blocked, 0s);
        EXPECT_EQ(refused.limits[1].state.blocked, 100s);
        const DecidedRequest& free = decide(wide);
        EXPECT_TRUE(free.granted());
        // A refund in Redis may arrive after the next check.
        EXPECT_GE(free.remaining(), 6);
    }
}

TEST_F(Blocks, do_not_begin_because_of_what_is_taken_back)
{
    Coalescer& other = redis_at(server->port());
    for (int round = 0; round < 10; ++round) {
        KeyedZone& attackers = blocking_zone(1, &other);
        KeyedZone& victims = blocking_zone(3);
        attackers.zone.spans_servers = victims.zone.spans_servers = true;
        EXPECT_TRUE(decide(attackers).granted());
        std::vector<DecidedRequest*> requests;
        for (int i = 0; i < 40; ++i) {
            requests.push_back(&start({ { victims }, { attackers } }));
        }
        for (DecidedRequest* request : requests) {
            EXPECT_TRUE(loop_.run_until([&] { return !request->was_sent || request->calls > 0; }));
            EXPECT_EQ(request->result(), Result::rejected);
            EXPECT_EQ(request->limits[0].state.blocked, 0s);
        }
        EXPECT_EQ(block_in_redis(victims), 0s);
        now += redis().client().longest_wait();
        EXPECT_EQ(block_in_redis(victims), 0s) << "nor does one begin later";
        EXPECT_EQ(decide(victims).remaining(), 2);
        EXPECT_EQ(begun(attackers), 1U);
        EXPECT_GT(block_in_redis(attackers), 0s);
    }
}

TEST_F(Blocks, do_not_begin_because_of_what_is_taken_back_after_them)
{
    KeyedZone& attackers = blocking_zone(1, &redis_at(server->port()));
    KeyedZone& victims = blocking_zone(1);
    attackers.zone.spans_servers = victims.zone.spans_servers = true;
    EXPECT_TRUE(decide(attackers).granted());
    DecidedRequest& next = prepare({ { victims } });
    DecidedRequest& attack = start({ { victims }, { attackers } });
    attack.then = [&next] {
        now += 1ms;
        next.was_sent = next.decision.start();
    };
    finish(attack);
    EXPECT_EQ(attack.result(), Result::rejected);
    finish(next);
    EXPECT_EQ(next.result(), Result::rejected) << "executed before the refund";
    EXPECT_EQ(block_in_redis(victims), 0s);
    now += redis().client().longest_wait();
    EXPECT_EQ(block_in_redis(victims), 0s) << "nothing of the victim's had passed";
    EXPECT_TRUE(decide(victims).granted());
}

TEST_F(Blocks, of_limits_on_several_servers_begin_when_what_was_refused_is_taken_back)
{
    KeyedZone& in = blocking_zone(1);
    in.zone.spans_servers = true;
    EXPECT_TRUE(decide(in).granted());
    EXPECT_EQ(decide(in).limits[0].state.blocked, 0s);
    EXPECT_EQ(block_in_redis(in), 0s);
    now += redis().client().longest_wait();
    EXPECT_EQ(block_in_redis(in), 100s);
}

TEST_F(Blocks, do_not_begin_late_if_they_wait_for_what_is_taken_back)
{
    KeyedZone& in = blocking_zone(1);
    in.zone.spans_servers = true;
    EXPECT_TRUE(decide(in).granted());
    DecidedRequest& refused = start({ { in } });
    now += redis().client().longest_wait();  // the worker was stopped
    finish(refused);
    EXPECT_EQ(refused.result(), Result::rejected);
    EXPECT_EQ(block_in_redis(in), 0s) << "what the return of units left may be gone";
    EXPECT_EQ(decide(in).result(), Result::rejected);
    now += redis().client().longest_wait();
    EXPECT_EQ(block_in_redis(in), 100s) << "the next refusal begins one";
}

TEST_F(Blocks, are_kept_by_the_fail_mode_local)
{
    KeyedZone& in = blocking_zone(2, &no_redis(), Algorithm::sliding_window_log);
    EXPECT_TRUE(decide(in, local).granted() && decide(in, local).granted());
    EXPECT_EQ(decide(in, local).limits[0].state.blocked, 100s);
    EXPECT_EQ(begun(in), 1U);
    now += 60s;
    EXPECT_EQ(decide(in, local).limits[0].state.blocked, 40s);
    now += 40s;
    EXPECT_EQ(decide(in, local).limits[0].state.blocked, 100s) << "the counts refuse once more";
}

TEST_F(Blocks, do_not_begin_in_memory_for_a_time_after_the_clock_was_set_back)
{
    for (const Algorithm algorithm : rate_algorithms) {
        for (const microseconds by : { microseconds{ 2h }, microseconds{ 40h } }) {
            KeyedZone& in = blocking_zone(2, nullptr, algorithm);
            in.zone.policy.burst = in.zone.policy.whole() < 2 ? std::optional{ 1 } : std::nullopt;
            EXPECT_TRUE(decide(in).granted() && decide(in).granted());
            set_back(by);
            const DecidedRequest& refused = decide(in);
            EXPECT_EQ(refused.result(), Result::rejected) << "the counts are still there";
            EXPECT_LE(*refused.retry_after(), 2 * 24h + 2h) << name_of(algorithm);
            EXPECT_EQ(refused.limits[0].state.blocked, 0s) << name_of(algorithm);
            EXPECT_EQ(begun(in), 0U);
            now += 8 * 24h;
            EXPECT_TRUE(decide(in).granted() && decide(in).granted());
            EXPECT_EQ(decide(in).limits[0].state.blocked, 100s) << "what counts now is right";
            EXPECT_EQ(begun(in), 1U);
        }
    }
}

TEST_F(Blocks, begin_in_memory_although_clocks_drift_apart)
{
    KeyedZone& in = blocking_zone(1, nullptr);
    EXPECT_TRUE(decide(in).granted());
    set_back(2s);
    EXPECT_EQ(decide(in).limits[0].state.blocked, 100s);
}

TEST_F(Blocks, last_their_time_in_memory_although_the_clock_is_set)
{
    KeyedZone& in = blocking_zone(9, nullptr);
    EXPECT_EQ(decide({ { in, 10 } }).limits[0].state.blocked, 100s);
    now += 10s;
    for (const microseconds by : { microseconds{ 1h }, microseconds{ -2h }, microseconds{ 1h } }) {
        set_back(by);
        EXPECT_EQ(decide(in).limits[0].state.blocked, 90s);
    }
    now += 90s;
    EXPECT_TRUE(decide(in).granted());
    set_back(1h);
    EXPECT_TRUE(decide(in).granted()) << "a block that has ended does not come back";
}

TEST_F(Blocks, do_not_begin_by_what_only_tries)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& dry = blocking_zone(1, place);
        EXPECT_TRUE(decide(dry, dry_run).granted());
        EXPECT_EQ(decide(dry, dry_run).result(), Result::rejected_dry_run);
        KeyedZone& shadow = blocking_zone(1, place);
        KeyedZone& other = blocking_zone(1, place);
        EXPECT_EQ(decide({ { shadow, 1, true }, { other } }).result(), Result::passed);
        EXPECT_EQ(decide({ { shadow, 1, true } }).result(), Result::passed);
        EXPECT_EQ(decide({ { shadow, 1, true }, { other } }).result(), Result::rejected);
        now += 24h;
        EXPECT_TRUE(decide(dry).granted());
        EXPECT_TRUE(decide(shadow).granted());
        EXPECT_EQ(begun(dry) + begun(shadow), 0U);
    }
}

TEST_F(Blocks, that_stand_show_what_a_shadow_limit_would_do)
{
    for (Coalescer* place : { &redis(), static_cast<Coalescer*>(nullptr) }) {
        KeyedZone& in = blocking_zone(1, place);
        EXPECT_TRUE(decide(in).granted());
        EXPECT_EQ(decide(in).result(), Result::rejected);
        const DecidedRequest& shown = decide({ { in, 1, true } });
        EXPECT_EQ(shown.result(), Result::passed);
        EXPECT_FALSE(shown.granted());
        EXPECT_EQ(shown.limits[0].state.blocked, 100s);
    }
}

TEST_F(Blocks, do_not_begin_if_another_limit_has_no_answer_and_refuses)
{
    KeyedZone& in = blocking_zone(1);
    KeyedZone& away = zone(9, &no_redis());
    EXPECT_TRUE(decide(in).granted());
    EXPECT_EQ(decide({ { in }, { away } }, closes).result(), Result::failed_closed);
    EXPECT_EQ(block_in_redis(in), 0s);
    EXPECT_EQ(decide({ { in }, { away } }).result(), Result::rejected);
    EXPECT_EQ(block_in_redis(in), 100s);
}

TEST_F(Blocks, of_another_length_are_not_recalled_and_are_shortened)
{
    KeyedZone& in = blocking_zone(1);
    decide(in);
    EXPECT_EQ(decide(in).limits[0].state.blocked, 100s);
    in.zone.policy.block = 10s;
    now += 1s;
    const DecidedRequest& request = decide(in);
    EXPECT_EQ(request.source(), Source::redis);
    EXPECT_EQ(request.limits[0].state.blocked, 10s);
    EXPECT_EQ(block_in_redis(in), 10s);
    now += 9s;
    EXPECT_EQ(block_in_redis(in), 1s);
}

}  // namespace
}  // namespace ratelimit
