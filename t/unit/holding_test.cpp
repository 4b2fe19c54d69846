// What workers state of the units that their requests hold, with a real Redis.

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
        fail(message, redis::Failure::error_reply);
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

TEST_F(HoldingTest, many_keys_are_stated_again_a_part_at_a_time_and_those_that_are_held_first)
{
    Worker& of = add_worker();
    use_keys(of, 1000);
    request(of, 3);
    settle();
    ask("FLUSHALL");
    of.holdings.restate(0);
    for (int turn = 0; turn < 20; ++turn) {
        virtual_now += 1ms;
        of.loop.fire();
    }
    EXPECT_GT(of.client.messages.size(), 100U);
    EXPECT_LE(of.client.messages.size(), 200U) << "Redis has other things to do";
    answer(of, of.client.messages.begin());
    EXPECT_EQ(remaining(), 2);
    settle();
    end(of.requests.front());
    settle();
    EXPECT_FALSE(of.holdings.any());
}

TEST_F(HoldingTest, what_redis_may_count_is_stated_first_also_if_connections_are_lost_again)
{
    Worker& of = add_worker();
    use_keys(of, 1000);
    request(of, 3);
    settle();
    end(of.requests.front());
    for (int loss = 0; loss < 3; ++loss) {
        while (!of.client.messages.empty()) {
            take(of, of.client.messages.begin(), [](Message& message) {
                fail(message, redis::Failure::error_reply);
            });
        }
        of.holdings.restate(0);
    }
    expect_free_after_first_statement(of);
}

TEST_F(HoldingTest, units_granted_while_connections_are_lost_are_stated_first_when_they_end)
{
    Worker& of = add_worker();
    use_keys(of, 1000);
    settle();
    Held& granted = request(of, 3);
    of.holdings.restate(0);
    answer(of, of.client.messages.begin());
    ASSERT_EQ(granted.units(), 3);
    end(granted);
    of.holdings.restate(0);
    expect_free_after_first_statement(of);
}

TEST_F(HoldingTest, keys_whose_checks_redis_refused_need_no_statement)
{
    Worker& of = add_worker();
    for (int i = 0; i < 100; ++i) {
        Held& refused = request_of(of, { "{" + std::to_string(i) + "}" });
        take(of, of.client.messages.begin(), [](Message& message) {
            redis::Call* call = message.record.release();
            call->routing.written = false;  // OOM: Redis has executed nothing
            call->on_failure(redis::Failure::error_reply);
        });
        end(refused);
    }
    EXPECT_FALSE(of.holdings.any());
    virtual_now += 100ms;
    of.loop.fire();
    EXPECT_TRUE(of.client.messages.empty());
}

TEST_F(HoldingTest, a_key_is_forgotten_although_connections_are_lost_again_and_again)
{
    Worker& of = add_worker();
    end(request(of, 1));
    settle();
    for (int loss = 0; loss < 4; ++loss) {
        of.holdings.restate(0);
        settle();
        virtual_now += policy.rate.window / 2;
        of.loop.fire();
    }
    of.holdings.restate(0);
    virtual_now += 100ms;
    of.loop.fire();
    EXPECT_TRUE(of.client.messages.empty()) << "Redis cannot count it any longer";
}

TEST_F(HoldingTest, keys_whose_checks_were_lost_take_bounded_memory)
{
    Worker& of = add_worker();
    Held& running = request(of, 3);
    settle();
    // Another call waits for the key of which a message is in flight, and has a new key.
    Held& first = request_of(of, { "{total}" });
    settle();
    Held& second = request_of(of, { "{total}" });
    end(first);
    Held& waits = request_of(of, { "{new}", "{total}" });
    ASSERT_EQ(of.client.messages.size(), 1U);
    std::list<Message> kept;
    kept.swap(of.client.messages);
    for (int i = 0; i < 70'000; ++i) {
        Held& lost = request_of(of, { "{" + std::to_string(i) + "}" });
        while (!of.client.messages.empty()) {
            take(of, of.client.messages.begin(), [](Message& message) {
                fail(message, redis::Failure::connection);
            });
        }
        end(lost);
    }
    EXPECT_LE(of.holdings.size(), 65'536U + 3) << "three of them are in use";
    of.client.messages.swap(kept);
    while (!of.client.messages.empty()) {
        answer(of, of.client.messages.begin());
    }
    EXPECT_EQ(second.units() + waits.units(), 2);
    EXPECT_EQ(remaining(), 2) << "what is held is not forgotten";
    end(running);
}

TEST_F(HoldingTest, of_any_number_of_lost_checks_none_leaves_units_that_count)
{
    Worker& of = add_worker();
    const auto lose = [this, &of](bool executed) {
        take(of, of.client.messages.begin(), [this, executed](Message& message) {
            if (executed) {
                execute(message.command);
            }
            fail(message, redis::Failure::timeout);
        });
    };
    end(request(of));
    settle();
    const std::string last = "{66000}";
    for (int i = 0; i <= 66'000; ++i) {
        const std::string key = i == 0 ? "{k}" : "{" + std::to_string(i) + "}";
        Held& lost = request_of(of, { key });
        while (!of.client.messages.empty()) {
            lose(i == 0);
        }
        end(lost);
    }
    EXPECT_EQ(remaining(), 4);
    Held& refused = request_of(of, { last });
    EXPECT_TRUE(of.client.messages.empty()) << "the fail mode decides";
    end(refused);
    virtual_now += 100ms;
    of.loop.fire();
    while (!of.client.messages.empty()) {
        answer(of, of.client.messages.begin());
    }
    EXPECT_EQ(remaining(), 5);
    Held& passes = request_of(of, { last });
    answer(of, of.client.messages.begin());
    EXPECT_EQ(passes.units(), 1);
}

TEST_F(HoldingTest, a_process_that_leaves_does_not_wait_until_free_keys_are_stated)
{
    Worker& of = add_worker();
    use_keys(of, 1000);
    request(of, 3);
    settle();
    of.client.leave();
    of.holdings.restate(0);
    virtual_now += 1ms;
    of.loop.fire();
    ASSERT_EQ(of.client.messages.size(), 1U) << "what is held";
    answer(of, of.client.messages.begin());
    virtual_now += 100ms;
    of.loop.fire();
    EXPECT_TRUE(of.client.messages.empty());
    EXPECT_FALSE(of.loop.keeps_process());
    of.requests.clear();
    answer(of, of.client.messages.begin());
    of.holdings.close();
    EXPECT_EQ(of.client.messages.size(), 1000U);
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
    EXPECT_FALSE(of.holdings.any());
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
