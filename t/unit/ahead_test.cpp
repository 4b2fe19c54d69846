// Requests that pass before Redis has counted them (ahead=): which do, and that all are counted.

#include "ahead_fixture.h"
#include "allocation_count.h"

namespace ratelimit {
namespace {

class Ahead : public AheadTest {
protected:
    bool passes_ahead(KeyedZone& in, std::int64_t cost = 1)
    {
        const DecidedRequest& request = start(in, cost);
        return !request.was_sent && request.source() == Source::ahead
            && request.result() == Result::passed;
    }
    /// A request that waits for Redis.
    DecidedRequest& decided(AheadWorker& of, KeyedZone& in)
    {
        DecidedRequest& request = start(in);
        EXPECT_TRUE(request.was_sent);
        EXPECT_TRUE(of.loop.run_until([&request] { return request.calls > 0; }));
        return request;
    }
    /// Another node takes this much.
    void take_elsewhere(AheadWorker& of, KeyedZone& in, std::int64_t cost)
    {
        KeyedZone& elsewhere =
            zone(of, in.zone.name, in.zone.policy.rate.quota, in.zone.policy.algorithm);
        elsewhere.zone.policy = in.zone.policy;
        elsewhere.ahead = nullptr;
        DecidedRequest& request = start({ { elsewhere, cost, false, std::nullopt } });
        EXPECT_TRUE(of.loop.run_until([&request] { return request.calls > 0; }));
    }
};

TEST_F(Ahead, the_first_requests_of_a_key_pass_at_once_and_are_counted_behind)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 10);
    const DecidedRequest& first = start(in);
    EXPECT_FALSE(first.was_sent);
    EXPECT_EQ(first.result(), Result::passed);
    EXPECT_EQ(first.source(), Source::ahead);
    EXPECT_EQ(first.remaining(), 9);
    EXPECT_EQ(start(in).remaining(), 8);
    EXPECT_TRUE(one.deliver());
    EXPECT_TRUE(one.units.idle());
    EXPECT_EQ(left_in_redis(one, in), 8);
}

TEST_F(Ahead, at_most_n_units_are_without_an_answer)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 10);
    EXPECT_TRUE(passes_ahead(in, 2));
    EXPECT_TRUE(start(in, 2).was_sent) << "3 are allowed";
    KeyedZone& other = zone(one, "other", 10);
    EXPECT_TRUE(passes_ahead(other));
    EXPECT_TRUE(passes_ahead(other, 2));
    EXPECT_TRUE(start(other).was_sent);
    EXPECT_TRUE(one.deliver());
    EXPECT_EQ(left_in_redis(one, in), 6);
    EXPECT_EQ(left_in_redis(one, other), 6);
    EXPECT_TRUE(passes_ahead(other)) << "all are answered";
}

TEST_F(Ahead, a_busy_key_has_one_call_in_flight)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 1000);
    in.zone.ahead = 100;
    for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(passes_ahead(in));
    }
    const long before = server_.calls("evalsha");
    EXPECT_TRUE(one.settle());
    EXPECT_LE(server_.calls("evalsha") - before, 2) << "one, and all others";
    EXPECT_EQ(left_in_redis(one, in), 900);
}

TEST_F(Ahead, near_the_limit_redis_decides_so_that_one_worker_alone_is_exact)
{
    for (const Algorithm algorithm :
         { Algorithm::fixed_window, Algorithm::sliding_window_log, Algorithm::token_bucket }) {
        AheadWorker& one = worker();
        KeyedZone& in = zone(one, std::string(name_of(algorithm)), 10, algorithm);
        int passed = 0;
        int waited = 0;
        for (int i = 0; i < 15; ++i) {
            DecidedRequest& request = start(in);
            EXPECT_TRUE(one.deliver());
            passed += request.result() == Result::passed ? 1 : 0;
            waited += request.was_sent ? 1 : 0;
        }
        EXPECT_EQ(passed, 10) << name_of(algorithm);
        EXPECT_GE(waited, 3) << name_of(algorithm);
    }
}

TEST_F(Ahead, only_an_answer_raises_what_is_left)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 10, Algorithm::token_bucket);
    for (int i = 0; i < 12; ++i) {
        start(in);
        EXPECT_TRUE(one.deliver());
    }
    set_time(now() + 24h);
    EXPECT_EQ(decided(one, in).remaining(), 9) << "it waits, although all is left by now";
    EXPECT_TRUE(passes_ahead(in));
}

TEST_F(Ahead, a_request_passes_if_all_its_limits_allow_it_and_is_counted_in_all)
{
    AheadWorker& one = worker();
    KeyedZone& wide = zone(one, "wide", 100);
    KeyedZone& tight = zone(one, "tight", 4);
    const DecidedRequest& first = start({ { wide }, { tight, 2 } });
    EXPECT_FALSE(first.was_sent);
    EXPECT_EQ(first.source(0), Source::ahead);
    EXPECT_EQ(first.source(1), Source::ahead);
    EXPECT_TRUE(one.deliver());
    EXPECT_EQ(left_in_redis(one, wide), 99);
    EXPECT_EQ(left_in_redis(one, tight), 2);
    DecidedRequest& second = start({ { wide }, { tight } });
    EXPECT_TRUE(second.was_sent) << "tight has less than 3 left";
    EXPECT_EQ(one.units.unanswered(wide.redis_key), 0) << "Redis counts it in both";
    EXPECT_TRUE(one.deliver());
    EXPECT_EQ(second.source(0), Source::redis);
    EXPECT_EQ(left_in_redis(one, wide), 98);
    EXPECT_EQ(left_in_redis(one, tight), 1);
}

TEST_F(Ahead, a_limit_without_ahead_makes_the_request_wait)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 10);
    KeyedZone& exact = zone(one, "exact", 10);
    exact.zone.ahead = 0;
    exact.ahead = nullptr;
    DecidedRequest& request = start({ { in }, { exact } });
    EXPECT_TRUE(request.was_sent);
    EXPECT_TRUE(one.deliver());
    EXPECT_EQ(left_in_redis(one, in), 9);
    EXPECT_EQ(left_in_redis(one, exact), 9);
}

TEST_F(Ahead, without_redis_n_units_pass_and_then_the_fail_mode_decides)
{
    AheadWorker& one = worker_at(free_port(), 100ms);
    KeyedZone& in = zone(one, "z", 10);
    for (int i = 0; i < ahead; ++i) {
        EXPECT_TRUE(passes_ahead(in));
        one.loop.run_for(20ms);
    }
    DecidedRequest& request = start(in);
    EXPECT_TRUE(one.loop.run_until([&] { return !request.was_sent || request.calls > 0; }));
    EXPECT_EQ(request.result(), Result::failed_closed);
    one.loop.run_for(500ms);
    EXPECT_EQ(one.units.unanswered(in.redis_key), ahead) << "time frees none";
}

TEST_F(Ahead, units_of_a_lost_connection_are_reported_again_and_the_next_request_waits)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 100);
    EXPECT_TRUE(passes_ahead(in));
    EXPECT_TRUE(one.settle());
    server_.pause();
    EXPECT_TRUE(passes_ahead(in, 2));
    one.loop.run_for(10ms);
    server_.kill();
    EXPECT_TRUE(one.loop.run_until([&] { return one.events.downs > 0; }));
    EXPECT_EQ(one.units.unanswered(in.redis_key), 2);
    EXPECT_FALSE(passes_ahead(in)) << "what Redis knows of the key is uncertain";
    server_.start();
    set_time(now());
    EXPECT_TRUE(one.settle());
    EXPECT_EQ(left_in_redis(one, in), 98) << "Redis has lost what came before";
    EXPECT_TRUE(passes_ahead(in));
}

TEST_F(Ahead, a_late_answer_is_an_answer_so_nothing_is_counted_twice)
{
    AheadWorker& one = worker(200ms);
    KeyedZone& in = zone(one, "z", 100);
    EXPECT_TRUE(passes_ahead(in));  // Redis has the script then
    EXPECT_TRUE(one.settle());
    server_.pause();
    EXPECT_TRUE(passes_ahead(in, 3));
    one.loop.run_for(600ms);
    EXPECT_EQ(one.units.unanswered(in.redis_key), 3) << "a timeout frees none";
    server_.resume();
    EXPECT_TRUE(one.settle());
    EXPECT_EQ(left_in_redis(one, in), 96);
}

TEST_F(Ahead, an_error_frees_nothing)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 100);
    take_elsewhere(one, in, 1);
    server_.ask({ "CONFIG", "SET", "maxmemory", "1" });
    EXPECT_TRUE(passes_ahead(in, 3));
    EXPECT_TRUE(one.deliver());
    EXPECT_EQ(one.units.unanswered(in.redis_key), 3);
    server_.ask({ "CONFIG", "SET", "maxmemory", "0" });
    EXPECT_TRUE(one.settle());
    EXPECT_EQ(left_in_redis(one, in), 96);
}

TEST_F(Ahead, one_key_under_two_policies_has_n_units_in_all)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 10, Algorithm::gcra);
    in.zone.policy.burst = 9;
    EXPECT_TRUE(passes_ahead(in));
    in.zone.policy.burst = 5;
    EXPECT_TRUE(passes_ahead(in));
    in.zone.policy.burst = 9;
    EXPECT_TRUE(passes_ahead(in));
    EXPECT_TRUE(start(in).was_sent);
    EXPECT_TRUE(one.settle());
    EXPECT_EQ(left_in_redis(one, in), 6);
}

TEST_F(Ahead, a_cost_of_0_is_not_counted_and_reads_behind)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 10);
    take_elsewhere(one, in, 4);
    EXPECT_EQ(start(in, 0).remaining(), 10) << "this node knows nothing yet";
    EXPECT_TRUE(one.settle());
    EXPECT_EQ(start(in, 0).remaining(), 6);
    EXPECT_TRUE(one.settle());
    EXPECT_EQ(left_in_redis(one, in), 6);
}

TEST_F(Ahead, what_was_not_sent_when_the_process_exits_is_sent_by_another_client)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 100);
    KeyedZone& later = zone(one, "later", 100);
    EXPECT_TRUE(passes_ahead(in));
    EXPECT_TRUE(one.settle());
    EXPECT_TRUE(passes_ahead(in));
    EXPECT_TRUE(passes_ahead(in, 2));
    one.client->flush();
    one.units.close();
    one.client->close();
    EXPECT_EQ(one.units.unanswered(in.redis_key), 2) << "the first was written";
    EXPECT_TRUE(passes_ahead(later, 2)) << "a request that comes behind that";
    EXPECT_FALSE(one.units.idle());
    AheadWorker& last = worker();
    last.client->outbox().take(one.client->outbox());
    EXPECT_TRUE(last.loop.run_until([&] { return one.units.idle(); }));
    EXPECT_EQ(left_in_redis(last, zone(last, "z", 100)), 96);
    EXPECT_EQ(left_in_redis(last, zone(last, "later", 100)), 98);
}

TEST_F(Ahead, a_request_that_cost_another_amount_is_counted_with_that)
{
    enum class When { waiting, in_flight, answered };
    for (const Algorithm algorithm :
         { Algorithm::fixed_window, Algorithm::sliding_window_log, Algorithm::token_bucket }) {
        for (const When when : { When::waiting, When::in_flight, When::answered }) {
            for (const std::int64_t cost : { 0, 1, 3, 40 }) {
                AheadWorker& one = worker();
                const auto name = std::string(name_of(algorithm))
                    + std::to_string(static_cast<int>(when)) + "_" + std::to_string(cost);
                KeyedZone& in = zone(one, name, 100, algorithm);
                EXPECT_TRUE(passes_ahead(in));
                if (when != When::waiting) {
                    EXPECT_TRUE(one.settle());
                }
                DecidedRequest& request =
                    start({ { in, 2, false, std::nullopt, false, std::nullopt, true } });
                EXPECT_EQ(request.source(), Source::ahead);
                if (when == When::answered) {
                    EXPECT_TRUE(one.settle());
                }
                request.decision.settle(request.limits[0], cost);
                EXPECT_TRUE(one.settle());
                EXPECT_TRUE(one.deliver());
                EXPECT_EQ(left_in_redis(one, in), 99 - cost) << name;
            }
        }
    }
}

TEST_F(Ahead, what_passes_beyond_the_limit_is_counted_as_such)
{
    for (const Algorithm algorithm : rate_algorithms) {
        AheadWorker& one = worker();
        KeyedZone& in = zone(one, name_of(algorithm), 10, algorithm);
        if (keeps_arrival_time(algorithm)) {
            in.zone.policy.burst = algorithm == Algorithm::token_bucket ? 10 : 9;
        }
        const auto beyond = [&in] {
            return in.memory.memory().counters().sum(ZoneCounters::Units::ahead_beyond);
        };
        take_elsewhere(one, in, 9);
        EXPECT_FALSE(start({ { in, 3, false, std::nullopt } }).was_sent);
        EXPECT_TRUE(one.settle());
        EXPECT_EQ(beyond(), 2U) << name_of(algorithm);
        in.memory.memory().forget_key(in.key);
        EXPECT_FALSE(start({ { in, 2, false, std::nullopt } }).was_sent);
        EXPECT_TRUE(one.settle());
        EXPECT_EQ(beyond(), 4U) << name_of(algorithm);
        EXPECT_EQ(left_in_redis(one, in), 0) << name_of(algorithm);
    }
}

TEST_F(Ahead, nothing_is_allocated_for_requests_that_pass)
{
    AheadWorker& one = worker();
    KeyedZone& in = zone(one, "z", 1'000'000);
    in.key = "a key that is longer than short strings are, so that it would be allocated";
    in.redis_key = in.zone.key_start + in.key + "}";
    std::vector<std::unique_ptr<DecidedRequest>> requests;
    std::size_t fewest = SIZE_MAX;
    for (int round = 0; round < 20; ++round) {
        requests.clear();
        for (int i = 0; i < ahead; ++i) {
            requests.push_back(
                std::make_unique<DecidedRequest>(std::vector<Applied>{ { in } }, closes, clock));
        }
        const std::size_t before = allocation_count();
        for (const auto& request : requests) {
            EXPECT_FALSE(request->decision.start());
        }
        EXPECT_TRUE(one.settle());
        fewest = std::min(fewest, allocation_count() - before);
    }
    EXPECT_EQ(fewest, 0U);
}

}  // namespace
}  // namespace ratelimit
