// What workers state of the units that their requests hold, if they remember many keys.

#include "holding_fixture.h"

namespace ratelimit {
namespace {

class HoldingsOfManyKeys : public HoldingTest {
protected:
    /// Requests of these keys, one after another; Redis executes nothing (OOM).
    void refuse_keys(Worker& of, Holdings& zone, std::size_t first, std::size_t end_of_keys)
    {
        for (std::size_t i = first; i < end_of_keys; ++i) {
            const std::string key = "{" + std::to_string(i) + "}";
            Held& refused = send(of, limit_of(of, key, 1, &zone));
            take(of, std::prev(of.client.messages.end()), [](Message& message) {
                fail(message, redis::Fate::refused);
            });
            end(refused);
        }
    }
    /// Answers all that is repeated, a round trip of 5 ms after it was sent.
    std::size_t most_in_flight(Worker& of)
    {
        std::size_t most = 0;
        for (wait(of, 60ms); !of.client.messages.empty(); wait(of, 5ms)) {
            most = std::max(most, of.client.messages.size());
            for (std::size_t left = of.client.messages.size(); left > 0; --left) {
                answer(of, of.client.messages.begin());
            }
        }
        return most;
    }
};

TEST_F(
    HoldingsOfManyKeys, many_keys_are_stated_again_a_part_at_a_time_and_those_that_are_held_first)
{
    Worker& of = add_worker();
    use_keys(of, 1000);
    request(of, 3);
    settle();
    ask("FLUSHALL");
    of.holdings.restate(0);
    wait(of, 1ms);
    ASSERT_FALSE(of.client.messages.empty());
    answer(of, of.client.messages.begin());
    EXPECT_EQ(remaining(), 2);
    EXPECT_LE(most_in_flight(of), 200U) << "Redis has other things to do";
    settle();
    end(of.requests.front());
    settle();
    expect_over(of.holdings);
}

TEST_F(
    HoldingsOfManyKeys,
    more_are_stated_at_a_time_while_redis_answers_in_time_and_fewer_when_it_does_not)
{
    Worker& of = add_worker();
    use_keys(of, 2000);
    settle();
    of.holdings.restate(0);
    wait(of, 60ms);
    EXPECT_LE(of.client.messages.size(), 10U) << "all workers of a fleet do that at once";
    EXPECT_GT(most_in_flight(of), 50U);
    settle();
    of.holdings.restate(0);
    for (int i = 0; i < 5; ++i) {
        wait(of, 100ms);
        fail_all(of, redis::Fate::overdue);
    }
    wait(of, 60ms);
    EXPECT_LE(of.client.messages.size(), 10U);
    EXPECT_GT(of.client.messages.size(), 1U) << "Redis may execute them, and answer late";
    settle();
    expect_over(of.holdings);
}

TEST_F(HoldingsOfManyKeys, all_keys_that_are_held_are_renewed_in_time)
{
    Worker& of = add_worker();
    hold_keys(of, 12'000);
    settle();
    virtual_now += policy.rate.window / 2;
    wait(of, 100ms);
    EXPECT_EQ(of.client.messages.size(), 12'000U);
    settle();
    of.requests.clear();
    settle();
}

TEST_F(HoldingsOfManyKeys, many_zones_state_together_no_more_at_a_time_than_one)
{
    Worker& of = add_worker();
    std::list<Holdings> zones;
    for (int zone = 0; zone < 60; ++zone) {
        Holdings& holdings = zones.emplace_back(Holdings::Parts{
            of.client, policy.rate.window, +[]() noexcept { return virtual_now - 1'000'000s; },
            [](std::int64_t) {} });
        for (int i = 0; i < 20; ++i) {
            const std::string key = "{" + std::to_string(zone) + "." + std::to_string(i) + "}";
            end(send(of, limit_of(of, key, 1, &holdings)));
        }
    }
    settle();
    for (Holdings& holdings : zones) {
        holdings.restate(0);
    }
    EXPECT_LE(most_in_flight(of), 200U);
    settle();
    for (Holdings& holdings : zones) {
        expect_over(holdings);
        holdings.close();
    }
}

TEST_F(HoldingsOfManyKeys, what_is_held_in_one_zone_does_not_wait_behind_free_keys_of_another)
{
    Worker& of = add_worker();
    Holdings other({ of.client, policy.rate.window,
                     +[]() noexcept { return virtual_now - 1'000'000s; }, [](std::int64_t) {} });
    Held& held = send(of, limit_of(of, "{held}", 1, &other));
    use_keys(of, 2000);
    settle();
    of.holdings.restate(0);
    wait(of, 60ms);
    const std::size_t free = of.client.messages.size();
    EXPECT_GT(free, 1U);
    other.restate(0);
    wait(of, 2ms);
    EXPECT_EQ(of.client.messages.size(), free + 1) << "no reply has come";
    settle();
    end(held);
    settle();
    expect_over(other);
    other.close();
}

TEST_F(HoldingsOfManyKeys, what_redis_may_count_is_stated_first_also_if_connections_are_lost_again)
{
    Worker& of = add_worker();
    use_keys(of, 1000);
    request(of, 3);
    settle();
    end(of.requests.front());
    for (int loss = 0; loss < 3; ++loss) {
        fail_all(of, redis::Fate::failed);
        of.holdings.restate(0);
    }
    expect_free_after_first_statement(of);
}

TEST_F(HoldingsOfManyKeys, units_granted_while_connections_are_lost_are_stated_first_when_they_end)
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

TEST_F(HoldingsOfManyKeys, keys_whose_checks_redis_refused_need_no_statement)
{
    Worker& of = add_worker();
    refuse_keys(of, of.holdings, 0, 100);
    virtual_now += 100ms;
    of.loop.fire();
    EXPECT_TRUE(of.client.messages.empty());
    expect_over(of.holdings);
}

TEST_F(HoldingsOfManyKeys, a_key_in_use_keeps_no_other_from_being_forgotten)
{
    Worker& of = add_worker();
    Held& first = request_of(of, { "{total}" });
    settle();
    request_of(of, { "{total}" });
    end(first);
    request_of(of, { "{new}", "{total}" });
    ASSERT_EQ(of.client.messages.size(), 1U) << "the last one waits for its answer";
    std::list<Message> kept;
    kept.swap(of.client.messages);
    refuse_keys(of, of.holdings, 0, 66'000);
    EXPECT_LE(of.holdings.size(), 65'536U + 3);
    of.client.messages.swap(kept);
    settle();
    of.requests.clear();
    settle();
    expect_over(of.holdings);
}

TEST_F(HoldingsOfManyKeys, a_zone_with_too_many_keys_forgets_none_of_another)
{
    Worker& of = add_worker();
    Holdings other({ of.client, policy.rate.window,
                     +[]() noexcept { return virtual_now - 1'000'000s; }, [](std::int64_t) {} });
    constexpr std::size_t most = 65'536;
    refuse_keys(of, other, 0, 100);
    refuse_keys(of, of.holdings, 0, most);
    other.restate(0);
    of.holdings.restate(0);
    refuse_keys(of, of.holdings, most, most + 100);
    EXPECT_EQ(other.size(), 100U);
    EXPECT_LE(of.holdings.size(), most + 1);
    other.close();
}

TEST_F(HoldingsOfManyKeys, a_key_is_forgotten_although_connections_are_lost_again_and_again)
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

TEST_F(HoldingsOfManyKeys, keys_whose_checks_were_lost_take_bounded_memory)
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
        fail_all(of, redis::Fate::lost);
        end(lost);
    }
    EXPECT_LE(of.holdings.size(), 65'536U + 3) << "three of them are in use";
    of.client.messages.swap(kept);
    answer_all(of);
    EXPECT_EQ(second.units() + waits.units(), 2);
    EXPECT_EQ(remaining(), 2) << "what is held is not forgotten";
    end(running);
}

TEST_F(HoldingsOfManyKeys, of_any_number_of_lost_checks_none_leaves_units_that_count)
{
    Worker& of = add_worker();
    const auto lose = [this, &of](bool executed) {
        take(of, of.client.messages.begin(), [this, executed](Message& message) {
            if (executed) {
                execute(message.command);
            }
            fail(message, redis::Fate::overdue);
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
    answer_all(of);
    EXPECT_EQ(remaining(), 5);
    Held& passes = request_of(of, { last });
    answer(of, of.client.messages.begin());
    EXPECT_EQ(passes.units(), 1);
}

TEST_F(HoldingsOfManyKeys, a_process_that_leaves_can_end_before_free_keys_are_stated)
{
    Worker& of = add_worker();
    use_keys(of, 500);
    request(of, 3);
    settle();
    of.holdings.restate(0);
    wait(of, 1ms);
    ASSERT_EQ(of.client.messages.size(), 5U);
    EXPECT_TRUE(of.loop.keeps_process()) << "what is held";
    answer(of, of.client.messages.begin());
    EXPECT_FALSE(of.loop.keeps_process());
    of.holdings.close();
    EXPECT_EQ(of.client.messages.size(), 4U + 501U) << "what is not answered, and what was held";
}

}  // namespace
}  // namespace ratelimit
