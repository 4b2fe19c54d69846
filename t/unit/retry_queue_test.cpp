// Calls that wait for another try, and how long they keep a process that leaves.

#include "check/late_reply.h"
#include "check/settlement.h"
#include "holding_fixture.h"
#include "redis/retry_queue.h"
#include "redis/unsettled.h"
#include "virtual_client.h"

#include <algorithm>
#include <deque>

namespace ratelimit {
namespace {

class RetryQueueTest : public testing::Test {
protected:
    /// As a settlement: a call that fails waits for another try.
    class Tried final : public redis::Call {
    public:
        Tried(redis::RetryQueue& queue, bool urgent) : queue_(queue), urgent_(urgent) { add(); }

        void write(redis::CommandBuffer&) const override {}
        std::string_view routing_key() const noexcept override { return {}; }
        bool on_reply(const redisReply&) noexcept override { return true; }
        void ended(redis::Fate) noexcept override { add(); }
        bool given_up() const { return given_up_; }

    private:
        void add() noexcept { given_up_ = !queue_.add(*this, urgent_); }

        redis::RetryQueue& queue_;
        const bool urgent_;
        bool given_up_ = false;
    };

    void pass(milliseconds time)
    {
        for (milliseconds passed{ 0 }; passed < time; passed += 10ms) {
            virtual_now += 10ms;
            loop_.fire();
        }
    }

    VirtualLoop loop_;
    bool accepts_ = false;
    redis::RetryQueue queue_{ loop_, [this](redis::Call&) { return accepts_; } };
    std::deque<Tried> calls_;
};

TEST_F(RetryQueueTest, all_are_sent_whenever_the_server_accepts_again)
{
    for (milliseconds refused{ 0 }; refused < 2000ms; refused += 50ms) {
        accepts_ = false;
        for (int i = 0; i < 1400; ++i) {
            calls_.emplace_back(queue_, false);
        }
        pass(refused);
        accepts_ = true;
        pass(2000ms);
        EXPECT_TRUE(queue_.empty()) << refused.count();
        calls_.clear();
    }
}

TEST_F(RetryQueueTest, when_a_server_is_up_the_pause_is_over)
{
    calls_.emplace_back(queue_, false);
    pass(20ms);
    accepts_ = true;
    queue_.soon();
    pass(10ms);
    EXPECT_TRUE(queue_.empty());
}

TEST_F(RetryQueueTest, what_undoes_the_calls_that_find_no_room_finds_room)
{
    const auto given_up = [this] {
        return std::count_if(
            calls_.begin(), calls_.end(), [](const Tried& each) { return each.given_up(); });
    };
    for (int i = 0; i < 21'000; ++i) {
        calls_.emplace_back(queue_, false);
    }
    EXPECT_EQ(given_up(), 1000);
    for (int i = 0; i < 1000; ++i) {
        calls_.emplace_back(queue_, true);
    }
    pass(10s);
    EXPECT_EQ(given_up(), 1000) << "nor does it take the room of others";
    accepts_ = true;
    pass(6s);
    EXPECT_TRUE(queue_.empty());
}

TEST(UnsettledTest, a_process_waits_for_a_minute_from_when_it_leaves_or_from_the_newest)
{
    VirtualLoop loop;
    redis::UnsettledKeys keys(loop);
    const auto pass = [&](milliseconds time) {
        for (milliseconds passed{ 0 }; passed < time; passed += 1s) {
            virtual_now += 1s;
            loop.fire();
        }
    };
    EXPECT_FALSE(loop.keeps_process());
    std::optional<redis::Unsettled> first(std::in_place, keys, "k");
    pass(300s);
    EXPECT_TRUE(loop.keeps_process()) << "however old it is";
    keys.leave();
    pass(50s);
    EXPECT_TRUE(loop.keeps_process());
    keys.leave();
    pass(15s);
    EXPECT_FALSE(loop.keeps_process());
    std::optional<redis::Unsettled> second(std::in_place, keys, "other");
    first.reset();
    pass(50s);
    EXPECT_TRUE(loop.keeps_process());
    std::optional<redis::Unsettled> third(std::in_place, keys, "other", 50s);
    pass(12s);
    EXPECT_FALSE(loop.keeps_process()) << "the third follows what began with the second";
    third.emplace(keys, "other");
    EXPECT_TRUE(loop.keeps_process());
    third.reset();
    second.reset();
    EXPECT_FALSE(loop.keeps_process());
}

/// A settlement that begins 50 seconds after the process began to leave.
class LateSettlement : public testing::Test {
protected:
    LateSettlement()
    {
        limit.scripts.block = scripts.add(block_script());
        limit.scripts.refund = scripts.add(refund_script());
        limit.policy = { Algorithm::gcra, { 1, 24h }, {}, {} };
        limit.policy.block = 1h;
        limit.cost = 1;
        limit.redis_key = "key";
        limit.block_key = "key:block";
        client.away = true;
        virtual_now += 100s;
        client.unsettled().leave();
        pass(50s);
    }
    void pass(milliseconds time)
    {
        for (milliseconds passed{ 0 }; passed < time; passed += 500ms) {
            virtual_now += 500ms;
            loop.fire();
        }
    }
    /// The process can exit 60 seconds after it began to leave, and not earlier.
    void expect_exit()
    {
        EXPECT_TRUE(client.unsettled().contains("key:block"));
        EXPECT_TRUE(loop.keeps_process());
        pass(8s);
        EXPECT_TRUE(loop.keeps_process());
        pass(5s);
        EXPECT_FALSE(loop.keeps_process()) << "a reply was awaited for 50 s before";
        EXPECT_TRUE(client.unsettled().contains("key:block")) << "it is still tried";
    }

    VirtualLoop loop;
    redis::ScriptRegistry scripts;
    NoEvents events;
    RemoteLimit limit;
    ManualClient client{ loop, scripts, events, scripts };
};

TEST_F(LateSettlement, a_key_that_is_spared_delays_an_exit_no_longer_than_what_that_follows)
{
    spare(client, limit.receipt(), 50s);
    expect_exit();
    client.away = false;
    pass(1s);
    ASSERT_EQ(client.messages.size(), 1U);
    client.messages.front().record.release()->batch_part()->on_part("+");
    EXPECT_TRUE(client.unsettled().empty());
}

TEST_F(LateSettlement, a_refund_that_falls_silent_delays_an_exit_no_longer_than_what_it_follows)
{
    client.away = false;
    take_back(client, limit.receipt(), { 1, 0us, 0us }, 0us, 50s);
    ASSERT_EQ(client.messages.size(), 1U);
    client.away = true;
    redis::PendingCall& record = client.messages.front().record;
    record.release()->overdue(record);
    expect_exit();
    ASSERT_NE(record.call, nullptr) << "the late reply is awaited";
    record.release()->ended(redis::Fate::lost);
}

TEST_F(LateSettlement, a_request_that_ends_late_is_settled_as_one_that_got_its_answer_in_time)
{
    limit.scripts.charge = scripts.add(charge_script(Algorithm::gcra));
    RemoteLimit* const limits[] = { &limit };
    const LimitCheck checks[] = { limit };
    Runs runs;
    runs.begin(1);
    const auto position = runs.add([](std::size_t) { return 1; });
    const auto late = std::make_shared<LateReply>(
        client, limits, checks, runs, std::nullopt, +[]() noexcept { return virtual_now; });
    redis::PendingCall reply;
    LateReply::await(late, reply);
    pass(20s);
    late->settle(position.run, 0, 5);
    EXPECT_TRUE(loop.keeps_process()) << "70 s after the process began to leave";
    pass(50s);
    EXPECT_TRUE(loop.keeps_process());
    pass(12s);
    EXPECT_FALSE(loop.keeps_process()) << "it does not wait for a reply for ever";
    reply.release()->ended(redis::Fate::lost);
}

}  // namespace
}  // namespace ratelimit
