// What workers state of the units that their requests hold, with a real Redis.

#include "allocation_count.h"
#include "holding_fixture.h"

namespace ratelimit {
namespace {

TEST_F(HoldingTest, a_request_holds_its_units_until_it_ends)
{
    Worker& of = add_worker();
    Held& first = request(of, 2);
    settle();
    EXPECT_EQ(first.units(), 2);
    EXPECT_EQ(remaining(), 3);
    end(first);
    settle();
    EXPECT_EQ(remaining(), 5);
    EXPECT_EQ(of.counted, 0);
}

TEST_F(HoldingTest, a_client_that_sends_one_request_after_the_other_is_never_refused)
{
    Worker& of = add_worker();
    Held& first = request(of, 5);
    settle();
    virtual_now += 30s;
    of.loop.fire();
    ASSERT_EQ(of.client.messages.size(), 1U) << "the renewal";
    end(first);
    Held& second = request(of, 5);
    ASSERT_EQ(of.client.messages.size(), 1U) << "the renewal states what is not held any longer";
    answer(of, of.client.messages.begin());
    settle();
    EXPECT_EQ(second.units(), 5);
    end(second);
    Held& third = request(of, 5);
    while (!of.client.messages.empty()) {
        answer(of, std::prev(of.client.messages.end()));  // over several connections: in any order
    }
    EXPECT_EQ(third.units(), 5);
}

TEST_F(HoldingTest, another_hold_disturbs_no_holder)
{
    Worker& old = add_worker();
    request(old, 1);
    settle();
    Worker& young = add_worker();
    for (int i = 0; i < 400; ++i) {
        Held& made = request(young, 1, {}, { Algorithm::concurrency, { 5, 4s }, {}, {}, {} });
        settle();
        ASSERT_EQ(made.units(), 1) << i;
        end(made);
        settle();
    }
    EXPECT_EQ(remaining(), 4);
}

TEST_F(HoldingTest, what_a_killed_worker_held_is_free_after_hold)
{
    add_worker();
    Worker& killed = add_worker();
    request(killed, 5);
    settle();
    workers_.pop_back();
    Held& refused = request(worker(0), 1);
    settle();
    EXPECT_EQ(refused.units(), 0);
    virtual_now += 59s;
    Held& early = request(worker(0), 1);
    settle();
    EXPECT_EQ(early.units(), 0);
    virtual_now += 9s;  // hold, and the time between two sweeps
    Held& passes = request(worker(0), 1);
    settle();
    EXPECT_EQ(passes.units(), 1);
}

TEST_F(HoldingTest, a_check_that_is_executed_long_after_it_was_sent_takes_nothing)
{
    Worker& of = add_worker();
    end(request(of));
    settle();
    request(of);
    const std::string late = of.client.messages.front().command;
    fail_all(of, redis::Fate::overdue);
    workers_.pop_back();
    virtual_now += 1s;  // more than a statement may be late
    execute(late);
    add_worker();
    EXPECT_EQ(remaining(), policy.rate.quota);
}

TEST_F(HoldingTest, an_earlier_statement_does_not_replace_a_later_one)
{
    Worker& of = add_worker();
    end(request(of));
    settle();
    request(of);
    const std::string earlier = of.client.messages.front().command;
    fail_all(of, redis::Fate::overdue);
    wait(of, 60ms);
    answer_all(of);
    execute(earlier);
    EXPECT_EQ(remaining(), policy.rate.quota);
}

TEST_F(HoldingTest, a_clock_that_steps_back_holds_no_longer_than_hold)
{
    add_worker();
    Worker& killed = add_worker();
    request(killed, 5);
    settle();
    workers_.pop_back();
    skew_ = -3600s;
    Held& refused = request(worker(0), 1);
    settle();
    EXPECT_EQ(refused.units(), 0);
    virtual_now += 68s;  // hold, and the time between two sweeps
    Held& passes = request(worker(0), 1);
    settle();
    EXPECT_EQ(passes.units(), 1);
}

TEST_F(HoldingTest, the_first_answer_after_a_step_of_the_clock_tells_the_time_for_all_keys)
{
    Worker& of = add_worker();
    end(request_of(of, { "{a}" }));
    end(request_of(of, { "{b}" }));
    settle();
    skew_ = 60s;
    request_of(of, { "{a}" });
    settle();
    Held& other = request_of(of, { "{b}" });
    answer(of, of.client.messages.begin());
    EXPECT_EQ(other.units(), 1) << "a statement with the time before the step is ignored";
}

TEST_F(HoldingTest, the_server_to_which_a_slot_is_moved_tells_the_time_for_its_keys_alone)
{
    Worker& of = add_worker();
    end(request_of(of, { "{a}" }));
    end(request_of(of, { "{b}" }));
    settle();
    redis::ServerClock of_target;
    const auto answer_as_target = [&] {
        clock_ = &of_target;
        answer(of, of.client.messages.begin());
        clock_ = nullptr;
    };
    for (const auto ahead : { -60s, 60s }) {
        skew_ = ahead;
        Held& moving = request_of(of, { "{a}" });
        for (int sent = 0; sent < 2 && moving.units() == 0; ++sent) {  // the first may be ignored
            answer_as_target();
        }
        EXPECT_EQ(moving.units(), 1);
        skew_ = 0s;
        virtual_now += 2s;  // longer than a statement may take
        Held& other = request_of(of, { "{b}" });
        answer(of, of.client.messages.begin());
        EXPECT_EQ(other.units(), 1);
        end(other);
        answer(of, of.client.messages.begin());
        skew_ = ahead;
        end(moving);
        for (int sent = 0; sent < 2 && !of.client.messages.empty(); ++sent) {  // as above
            answer_as_target();
        }
        EXPECT_TRUE(of.client.messages.empty());
        virtual_now += 2s;
        Held& later = request_of(of, { "{a}" });
        answer_as_target();
        EXPECT_EQ(later.units(), 1) << "the target's clock is known since its last answer";
        end(later);
        answer_as_target();
    }
}

TEST_F(HoldingTest, a_clock_that_was_years_ahead_for_a_moment_leaves_no_key_for_years)
{
    Worker& of = add_worker();
    skew_ = std::chrono::hours{ 24 * 365 * 20 };
    end(request(of, 1));
    settle();
    ask("DEL {k}");
    skew_ = 0s;
    Held& second = request(of, 2);
    settle();
    EXPECT_EQ(second.units(), 2);
    end(second);
    settle();
    EXPECT_EQ(remaining(), 5);
    EXPECT_LT(std::stoll(ask("GET %s", "end of {k}")), (virtual_now + 200s).count());
}

TEST_F(HoldingTest, units_that_several_requests_take_as_the_last_of_before_end_are_held_for_hold)
{
    Worker& of = add_worker();
    Held& first = request(of, 1);
    settle();
    Held& failing = request(of, 1);
    end(first);
    const std::array both{ &request(of, 1), &request(of, 1) };  // in the next message
    take(of, of.client.messages.begin(), [](Message& message) {
        fail(message, redis::Fate::failed);
    });
    settle();
    EXPECT_EQ(failing.units(), 0);
    for (const Held* held : both) {
        EXPECT_EQ(held->units(), 1);
    }
    virtual_now += 50s;
    EXPECT_EQ(remaining(), 3);
}

TEST_F(HoldingTest, a_worker_states_again_what_a_server_may_not_know)
{
    Worker& of = add_worker();
    request(of, 3);
    settle();
    ask("FLUSHALL");
    of.holdings.restate(0);
    virtual_now += 1ms;
    settle();
    EXPECT_EQ(remaining(), 2);
}

TEST_F(HoldingTest, a_request_that_waits_for_one_key_keeps_what_is_known_of_its_others)
{
    Worker& of = add_worker();
    Held& running = request_of(of, { "{total}" });
    settle();
    end(request_of(of, { "{k}" }));
    settle();
    virtual_now += 59'700ms;  // soon nothing has to be known of {k} any longer
    Held& second = request_of(of, { "{total}" });
    end(running);  // so that the message in flight says too much
    Held& waits = request_of(of, { "{k}", "{total}" });
    ASSERT_EQ(of.client.messages.size(), 1U);
    virtual_now += 200ms;
    of.loop.fire();
    Held& other = request_of(of, { "{other}" });
    settle();
    for (Held* each : { &second, &waits, &other }) {
        EXPECT_EQ(each->units(), 1);
    }
    EXPECT_EQ(remaining(), 4) << "of {k}";
    end(waits);
    settle();
    EXPECT_EQ(remaining(), 5) << "of {k}";
    EXPECT_EQ(of.counted, 2);
}

TEST_F(HoldingTest, a_request_that_ends_while_it_waits_leaves_nothing_known_for_ever)
{
    Worker& of = add_worker();
    Held& running = request_of(of, { "{total}" });
    settle();
    Held& second = request_of(of, { "{total}" });
    end(running);
    end(request_of(of, { "{k}", "{total}" }));  // it leaves before it is sent
    settle();
    end(second);
    settle();
    expect_over(of.holdings);
}

TEST_F(HoldingTest, what_is_free_is_stated_again_after_a_takeover_and_known_until_hold_is_over)
{
    Worker& of = add_worker();
    Held& first = request(of, 5);
    settle();
    const std::string before = ask("DUMP {k}");
    end(first);
    settle();
    wait(of, duration_cast<milliseconds>(policy.rate.window) - 1s);
    EXPECT_FALSE(of.holdings.rest());
    ask("RESTORE {k} 0 %b REPLACE", before.data(), before.size());  // of the new master
    of.holdings.restate(0);
    settle();
    EXPECT_EQ(remaining(), 5);
    expect_over(of.holdings);
}

TEST_F(HoldingTest, a_key_for_which_there_is_no_memory_is_not_remembered)
{
    Worker& of = add_worker();
    const std::string key = "{a key that is longer than a short string}";
    end(request_of(of, { "{short}" }));
    settle();
    expect_over(of.holdings);  // the memory of {short} is used for the next key
    fail_allocations(true);
    EXPECT_THROW(of.holdings.of(key, 0, statement_), std::bad_alloc);
    fail_allocations(false);
    EXPECT_TRUE(of.holdings.rest());
    end(request_of(of, { key }));
    settle();
    expect_over(of.holdings);
}

TEST_F(HoldingTest, a_foreign_value_counts_as_no_state)
{
    Worker& of = add_worker();
    const std::vector<std::string> values{ "",
                                           "x",
                                           std::string(18, '\1'),
                                           std::string(64, '\xff'),
                                           "HELD",
                                           std::string("HELD") + std::string(28, '\0'),
                                           std::string("HELD") + std::string(60, '\xff'),
                                           std::string("HELD\1\0\0\0", 8) + std::string(56, '\xff'),
                                           std::string("HELD\5\0\0\0", 8) + std::string(24, '\0'),
                                           std::string(1 << 22, 'H') };
    for (const std::string& value : values) {
        ask("SET {k} %b", value.data(), value.size());
        Held& first = request(of, 2);
        settle();
        EXPECT_EQ(first.units(), 2) << value.substr(0, 70);
        EXPECT_EQ(remaining(), 3) << value.substr(0, 70);
        EXPECT_LT(ask("GET {k}").size(), 200U);
        end(first);
        settle();
        EXPECT_EQ(remaining(), 5);
    }
    ask("DEL {k}");
    ask("RPUSH {k} 1");
    Held& first = request(of, 2);
    settle();
    EXPECT_EQ(first.units(), 2) << "a list is overwritten";
}

TEST_F(HoldingTest, many_holders_of_one_key_each_find_their_own_entry)
{
    for (int i = 0; i < 300; ++i) {
        add_worker();
    }
    for (int round = 0; round < 3; ++round) {
        std::vector<Held*> all;
        for (const auto& of : workers_) {
            all.push_back(
                &request(*of, 1, {}, { Algorithm::concurrency, { 1000, 60s }, {}, {}, {} }));
        }
        settle();
        for (Held* held : all) {
            ASSERT_EQ(held->units(), 1);
        }
        EXPECT_EQ(held(), 300);
        for (const auto& of : workers_) {
            of->requests.clear();
        }
        settle();
        EXPECT_EQ(remaining(), 5);
    }
    EXPECT_EQ(ask("GETRANGE {k} 0 3"), "HELD");
}

}  // namespace
}  // namespace ratelimit
