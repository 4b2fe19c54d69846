// Requests that hold units of several keys, which are busy at different times.

#include "holding_fixture.h"

namespace ratelimit {
namespace {

class KeptKeys : public HoldingTest {
protected:
    using Keys = std::vector<std::string_view>;

    /// It knows the time of Redis.
    Worker& start()
    {
        Worker& of = add_worker();
        end(request(of));
        settle();
        return of;
    }
    static bool is_of(const Message& message, const Keys& keys)
    {
        return std::ranges::any_of(keys, [&message](std::string_view key) {
            return message.command.find(key) != std::string::npos;
        });
    }
    /// How many messages of these keys are in flight.
    static auto in_flight(Worker& of, const Keys& keys)
    {
        return std::ranges::count_if(
            of.client.messages, [&](const Message& message) { return is_of(message, keys); });
    }
    /// Answers what is in flight of these keys now.
    void answer_keys(Worker& of, const Keys& keys)
    {
        auto& sent = of.client.messages;
        for (auto left = in_flight(of, keys); left > 0; --left) {
            answer(of, std::ranges::find_if(sent, [&](const Message& message) {
                       return is_of(message, keys);
                   }));
        }
    }
    /// A request in flight whose message says too much of its keys, so that none can join it.
    Held& make_busy(Worker& of, const Keys& keys)
    {
        Held& running = request_of(of, keys);
        answer_keys(of, keys);
        Held& in_flight = request_of(of, keys);
        end(running);
        return in_flight;
    }
    /// How long a request waits before its keys are kept for it.
    static milliseconds before_kept(Worker& of) { return of.client.longest_wait() / 2 + 1ms; }
    /// A request of {k} and {b}, which are kept for it; {k} is idle.
    Held& wait_for_b(Worker& of)
    {
        make_busy(of, { "{k}" });
        make_busy(of, { "{b}" });
        Held& waits = request_of(of, { "{k}", "{b}" });
        wait(of, before_kept(of));
        answer(of, of.client.messages.begin());
        EXPECT_EQ(in_flight(of, { "{b}" }), 1);
        EXPECT_EQ(in_flight(of, { "{k}" }), 0);
        return waits;
    }
};

TEST_F(KeptKeys, a_request_of_keys_that_are_never_free_together_is_sent_in_time)
{
    Worker& of = start();
    const std::array<Keys, 2> pairs = { { { "{a}", "{c}" }, { "{b}", "{d}" } } };
    std::array in_flight{ &make_busy(of, pairs[0]), &make_busy(of, pairs[1]) };
    const Held& waits = request_of(of, { "{a}", "{b}" });
    for (std::size_t i = 0; waits.end == ShardPart::End::pending; ++i) {
        const std::size_t pair = i % 2;
        Held& next = request_of(of, pairs[pair]);
        wait(of, 10ms);
        answer_keys(of, pairs[pair]);
        wait(of, 10ms);
        end(*std::exchange(in_flight[pair], &next));
    }
    EXPECT_EQ(waits.end, ShardPart::End::answered);
    settle();
    EXPECT_EQ(of.counted, 6) << "a unit of {a}, of {b}, and those of the pairs that are left";
}

TEST_F(KeptKeys, a_request_that_has_not_waited_long_keeps_no_key)
{
    Worker& of = start();
    make_busy(of, { "{k}" });
    make_busy(of, { "{b}" });
    request_of(of, { "{k}", "{b}" });
    const Held& next = request_of(of, { "{k}", "{c}" });
    answer(of, of.client.messages.begin());
    ASSERT_EQ(in_flight(of, { "{c}" }), 1);
    answer(of, std::prev(of.client.messages.end()));
    EXPECT_EQ(next.units(), 1);
}

TEST_F(KeptKeys, no_other_request_is_sent_before_that_for_which_its_keys_are_kept)
{
    Worker& of = start();
    const Held& first = wait_for_b(of);
    const Held& behind = request_of(of, { "{k}" });
    const Held& last = request_of(of, { "{k}", "{c}" });
    EXPECT_EQ(in_flight(of, { "{c}" }), 0);
    answer(of, of.client.messages.begin());
    EXPECT_EQ(of.client.messages.size(), 3U) << "parts of one statement";
    answer_all(of);
    for (const Held* each : { &first, &behind, &last }) {
        EXPECT_EQ(each->units(), 1);
    }
    EXPECT_EQ(remaining(), 1) << "of {k}";
}

TEST_F(KeptKeys, keys_are_kept_for_one_request_at_a_time)
{
    Worker& of = start();
    make_busy(of, { "{k}", "{b}" });
    make_busy(of, { "{c}" });
    make_busy(of, { "{d}" });
    const Held& first = request_of(of, { "{b}", "{k}" });
    request_of(of, { "{c}", "{d}" });
    wait(of, before_kept(of));
    answer_keys(of, { "{c}" });
    const Held& passes = request_of(of, { "{c}" });
    answer_keys(of, { "{c}" });
    EXPECT_EQ(passes.units(), 1);
    EXPECT_EQ(first.end, ShardPart::End::pending);
}

TEST_F(KeptKeys, units_that_become_free_are_stated_by_the_message_that_waits)
{
    Worker& of = start();
    const Held& waits = wait_for_b(of);
    end(of.requests.front());
    wait(of, 60ms);
    EXPECT_EQ(of.client.messages.size(), 1U) << "that of {b}";
    answer(of, of.client.messages.begin());
    answer_all(of);
    EXPECT_EQ(waits.units(), 1);
    EXPECT_EQ(remaining(), 4) << "of {k}";
}

TEST_F(KeptKeys, a_request_that_leaves_lets_its_keys_go)
{
    Worker& of = start();
    Held& leaves = wait_for_b(of);
    end(of.requests.front());
    const Held& behind = request_of(of, { "{k}" });
    EXPECT_EQ(of.client.messages.size(), 1U);
    end(leaves);
    answer(of, of.client.messages.begin());
    EXPECT_EQ(in_flight(of, { "{k}" }), 1);
    settle();
    EXPECT_EQ(behind.units(), 1);
    EXPECT_EQ(remaining(), 4) << "of {k}";
}

TEST_F(KeptKeys, if_redis_is_away_all_that_wait_fail_and_what_is_free_is_stated_later)
{
    Worker& of = start();
    const Held& first = wait_for_b(of);
    end(of.requests.front());
    const Held& behind = request_of(of, { "{k}" });
    of.client.away = true;
    take(of, of.client.messages.begin(), [](Message& message) {
        fail(message, redis::Fate::overdue);
    });
    EXPECT_EQ(first.end, ShardPart::End::failed);
    EXPECT_EQ(behind.end, ShardPart::End::failed);
    of.client.away = false;
    settle();
    EXPECT_EQ(remaining(), 5) << "of {k}";
}

TEST_F(KeptKeys, each_request_waits_no_longer_than_for_a_connection_and_a_reply)
{
    Worker& of = start();
    const Held& old = wait_for_b(of);
    wait(of, of.client.longest_wait() - before_kept(of) - 10ms);
    const Held& young = request_of(of, { "{k}", "{b}" });
    const Held& behind = request_of(of, { "{k}" });
    EXPECT_EQ(old.end, ShardPart::End::pending);
    wait(of, 10ms);
    EXPECT_EQ(old.end, ShardPart::End::failed);
    EXPECT_EQ(young.end, ShardPart::End::pending);
    answer(of, of.client.messages.begin());
    answer_all(of);
    EXPECT_EQ(young.units(), 1);
    EXPECT_EQ(behind.units(), 1);
}

TEST_F(KeptKeys, a_request_whose_time_is_over_fails_no_younger_one)
{
    Worker& of = start();
    const Held& old = wait_for_b(of);
    wait(of, of.client.longest_wait() - before_kept(of) - 10ms);
    const Held& young = request_of(of, { "{k}", "{b}" });
    while (!is_of(of.client.messages.back(), { "{k}" })
           || !is_of(of.client.messages.back(), { "{b}" })) {
        answer(of, of.client.messages.begin());
    }
    const redis::Call& sent = *of.client.messages.back().record.call;
    EXPECT_GT(sent.routing.expires, of.client.now() + of.client.longest_wait() / 2);
    wait(of, 20ms);
    EXPECT_EQ(old.end, ShardPart::End::failed);
    answer_all(of);
    EXPECT_EQ(young.units(), 1);
    settle();
    EXPECT_EQ(remaining(), 3) << "of {k}: the units of the one that failed are free";
}

TEST_F(KeptKeys, all_that_are_ready_are_sent_before_keys_are_kept_again)
{
    Worker& of = start();
    for (const std::string_view key : { "{k}", "{b}", "{d}" }) {
        make_busy(of, { key });
    }
    request_of(of, { "{k}", "{b}" });
    request_of(of, { "{k}", "{d}" });
    wait(of, before_kept(of));
    request_of(of, { "{k}", "{c}" });
    request_of(of, { "{k}" });
    answer_keys(of, { "{b}" });
    answer_keys(of, { "{k}" });
    EXPECT_EQ(in_flight(of, { "{b}" }), 1);
    EXPECT_EQ(in_flight(of, { "{c}" }), 1);
    EXPECT_EQ(in_flight(of, { "{k}" }), 3) << "all but that of {d}";
}

TEST_F(KeptKeys, the_next_request_whose_keys_are_kept_is_the_oldest_and_keeps_all_of_them)
{
    Worker& of = start();
    wait_for_b(of);
    make_busy(of, { "{c}" });
    make_busy(of, { "{d}" });
    const Held& older = request_of(of, { "{k}", "{d}" });
    request_of(of, { "{b}", "{c}" });
    wait(of, before_kept(of) - 5ms);
    for (int i = 0; i < 2; ++i) {
        answer_keys(of, { "{b}" });  // the second one: what is kept so long is sent and answered
        answer_keys(of, { "{k}" });
    }
    wait(of, 5ms);
    const std::size_t sent = of.client.messages.size();
    request_of(of, { "{k}" });
    EXPECT_EQ(of.client.messages.size(), sent) << "kept for the older one";
    request_of(of, { "{b}" });
    EXPECT_EQ(of.client.messages.size(), sent + 1) << "not kept for the younger one";
    answer_keys(of, { "{d}" });
    answer_keys(of, { "{d}" });
    EXPECT_EQ(older.units(), 1);
}

TEST_F(KeptKeys, a_request_that_waited_behind_a_message_of_its_keys_has_waited_since_it_came)
{
    Worker& of = start();
    make_busy(of, { "{c}" });
    make_busy(of, { "{d}" });
    make_busy(of, { "{k}", "{b}" });
    request_of(of, { "{k}", "{c}" });
    wait(of, before_kept(of) - 50ms);
    const Held& older = request_of(of, { "{k}", "{b}" });
    wait(of, 10ms);
    const Held& younger = request_of(of, { "{k}", "{d}" });
    wait(of, 40ms);
    answer_keys(of, { "{k}" });
    make_busy(of, { "{b}" });
    answer_keys(of, { "{c}" });
    answer_keys(of, { "{c}" });
    EXPECT_EQ(in_flight(of, { "{k}" }), 0) << "{b} and {d} are busy";
    wait(of, before_kept(of) - 45ms);
    const Held& last = request_of(of, { "{k}" });
    EXPECT_EQ(in_flight(of, { "{k}" }), 0) << "kept for the older one";
    answer_keys(of, { "{d}" });
    EXPECT_EQ(in_flight(of, { "{k}" }), 0);
    answer_keys(of, { "{b}" });
    EXPECT_EQ(in_flight(of, { "{k}" }), 3);
    settle();
    for (const Held* each : { &older, &younger, &last }) {
        EXPECT_EQ(each->units(), 1);
    }
}

TEST_F(KeptKeys, a_request_does_not_inherit_the_place_of_one_that_failed)
{
    Worker& of = start();
    const Held& old = wait_for_b(of);
    wait(of, of.client.longest_wait() - before_kept(of) - 10ms);
    request_of(of, { "{k}", "{b}" });
    const Held& behind = request_of(of, { "{k}" });
    answer_keys(of, { "{k}" });
    EXPECT_EQ(behind.end, ShardPart::End::pending);
    wait(of, 10ms);
    EXPECT_EQ(old.end, ShardPart::End::failed);
    answer_keys(of, { "{k}" });
    EXPECT_EQ(behind.units(), 1);
}

TEST_F(KeptKeys, very_many_requests_that_wait_for_one_key_are_sent_by_one_answer)
{
    Worker& of = start();
    make_busy(of, { "{k}" });
    constexpr std::size_t many = 20'000;
    std::vector<std::string> others;
    for (std::size_t i = 0; i < many; ++i) {
        others.push_back("{k}" + std::to_string(i));
    }
    for (const std::string& other : others) {
        request_of(of, { "{k}", other });
    }
    answer(of, of.client.messages.begin());
    EXPECT_EQ(of.client.messages.size(), many);
}

TEST_F(KeptKeys, whatever_happens_no_request_waits_for_ever_and_redis_knows_what_is_held)
{
    const std::vector<std::string_view> all{ "{k}", "{b}", "{c}", "{d}" };
    for (std::int64_t trace = 0; trace < from_environment("TRACE_STEPS", 60'000) / 300; ++trace) {
        ask("FLUSHALL");
        workers_.clear();
        Worker& of = add_worker();
        const bool faults = any(0, 1) == 0;
        milliseconds time{ 0 };  // without faults: less than a request may wait
        for (int step = 0; step < 200; ++step) {
            const auto action = any(0, 19);
            auto& sent = of.client.messages;
            const auto at =
                sent.empty() ? sent.end() : std::next(sent.begin(), any(0, std::ssize(sent) - 1));
            if (action < 6) {
                Keys keys = all;
                std::erase_if(keys, [this](std::string_view) { return any(0, 1) == 0; });
                request_of(of, keys.empty() ? all : keys);
            } else if (action < 11 && !of.requests.empty()) {
                end(*std::next(of.requests.begin(), any(0, std::ssize(of.requests) - 1)));
            } else if (action < 16 && at != sent.end()) {
                answer(of, at);
            } else if (action < 18 && faults && at != sent.end()) {
                const auto fate = any_of({ redis::Fate::overdue, redis::Fate::failed });
                take(of, at, [fate](Message& message) { fail(message, fate); });
            } else if (action == 18 && (faults || time < of.client.longest_wait() / 2)) {
                const milliseconds more{ any(1, 60) };
                wait(of, more);
                time += more;
            } else if (action == 19 && faults && any(0, 9) == 0) {
                of.client.away = !of.client.away;
            }
        }
        of.client.away = false;
        settle();
        const auto waits = [](const Held& each) { return each.end == ShardPart::End::pending; };
        ASSERT_TRUE(std::ranges::none_of(of.requests, waits)) << "trace " << trace;
        const auto fails = [](const Held& each) { return each.end == ShardPart::End::failed; };
        ASSERT_TRUE(faults || std::ranges::none_of(of.requests, fails)) << "trace " << trace;
        ASSERT_TRUE(of.coalescer.idle());
        of.requests.clear();
        settle();
        ASSERT_EQ(remaining(), policy.rate.quota) << "trace " << trace;
        settle();
        ASSERT_FALSE(of.loop.keeps_process());
    }
}

}  // namespace
}  // namespace ratelimit
