// Settlements that wait for another try, and how long they keep a process that leaves.

#include "check/settlement.h"
#include "holding_fixture.h"
#include "redis/outbox.h"
#include "redis/unsettled.h"
#include "virtual_client.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <hiredis/hiredis.h>

namespace ratelimit {
namespace {

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

/// Settlements to a Redis that is away.
class SettlementsTest : public testing::Test {
protected:
    SettlementsTest()
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
    }
    void pass(milliseconds time, milliseconds step = 500ms)
    {
        for (milliseconds passed{ 0 }; passed < time; passed += step) {
            virtual_now += step;
            loop.fire();
        }
    }
    void refund_each(int count)
    {
        for (int i = 0; i < count; ++i) {
            take_back(client, limit, { 1, 0us, 0us }, 0us);
        }
    }
    /// Answers all, a millisecond after it was sent, for this time.
    std::size_t answer_all(milliseconds time)
    {
        std::size_t answered = 0;
        for (milliseconds passed{ 0 }; passed < time; passed += 1ms) {
            pass(1ms, 1ms);
            while (!client.messages.empty()) {
                std::list<Message> taken;
                taken.splice(taken.begin(), client.messages, client.messages.begin());
                taken.front().record.release()->batch_part()->on_part({ "+" });
                ++answered;
            }
        }
        return answered;
    }

    VirtualLoop loop;
    redis::ScriptRegistry scripts;
    redis::ClientEvents events;
    RemoteLimit limit;
    ManualClient client{ loop, scripts, events, scripts };
};

TEST_F(SettlementsTest, all_are_sent_whenever_the_server_accepts_again)
{
    limit.block_key = {};
    limit.policy.block = 0s;
    for (milliseconds refused{ 0 }; refused < 2000ms; refused += 50ms) {
        client.away = true;
        refund_each(1400);
        pass(refused, 10ms);
        client.away = false;
        EXPECT_EQ(answer_all(2000ms), 1400U) << refused.count();
        EXPECT_TRUE(client.outbox().empty()) << refused.count();
    }
}

TEST_F(SettlementsTest, when_a_server_is_up_the_pause_is_over)
{
    refund_each(1);
    pass(20ms, 10ms);
    client.away = false;
    client.outbox().server_up();
    pass(10ms, 10ms);
    EXPECT_EQ(client.messages.size(), 1U);
    answer_all(100ms);
}

TEST_F(SettlementsTest, a_refund_that_redis_refuses_is_given_up_after_ten_seconds)
{
    limit.block_key = {};
    limit.policy.block = 0s;
    refund_each(1);
    pass(9s);
    EXPECT_EQ(client.take_failed(), 0U);
    pass(2s);
    EXPECT_EQ(client.take_failed(), 1U);
    EXPECT_TRUE(client.outbox().empty());
}

TEST_F(SettlementsTest, that_keys_are_spared_has_room_when_their_refunds_find_none)
{
    refund_each(21'000);
    EXPECT_EQ(client.take_failed(), 1000U);
    pass(5s);
    EXPECT_EQ(client.take_failed(), 0U) << "nor does it take the room of others";
    client.away = false;
    EXPECT_EQ(answer_all(4s), 20'000U + 20'000U + 1000U) << "each refund spares its key behind it";
    EXPECT_TRUE(client.outbox().empty());
}

/// A settlement that begins 50 seconds after the process began to leave.
class LateSettlement : public SettlementsTest {
protected:
    LateSettlement()
    {
        client.unsettled().leave();
        pass(50s);
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
};

TEST_F(LateSettlement, a_key_that_is_spared_delays_an_exit_no_longer_than_what_that_follows)
{
    spare(client, limit, 50s);
    expect_exit();
    client.away = false;
    pass(1s);
    ASSERT_EQ(client.messages.size(), 1U);
    client.messages.front().record.release()->batch_part()->on_part({ "+" });
    EXPECT_TRUE(client.unsettled().empty());
}

TEST_F(LateSettlement, a_refund_that_falls_silent_delays_an_exit_no_longer_than_what_it_follows)
{
    client.away = false;
    take_back(client, limit, { 1, 0us, 0us }, 0us, 50s);
    ASSERT_EQ(client.messages.size(), 1U);
    client.away = true;
    redis::PendingCall& record = client.messages.front().record;
    record.release()->overdue(record);
    expect_exit();
    ASSERT_NE(record.call, nullptr) << "the late reply is awaited";
    record.release()->ended(redis::Fate::lost);
}

/// A check that falls silent.
class LateCheck : public LateSettlement {
protected:
    /// The late reply goes to it.
    redis::PendingCall& send(bool sent_again)
    {
        limit.scripts.charge = scripts.add(charge_script(Algorithm::gcra));
        limit.scripts.several = scripts.add(several_script(std::array{ Algorithm::gcra }));
        request.limits = limits;
        client.away = false;
        EXPECT_TRUE(coalescer.send(request));
        redis::PendingCall& record = client.messages.front().record;
        record.call->routing.sent_again = sent_again;
        record.release()->overdue(record);
        return record;
    }

    Coalescer coalescer{ client, +[]() noexcept { return virtual_now; } };
    std::array<RemoteLimit*, 1> limits{ &limit };
    struct : ShardPart {
        void ended() noexcept override {}
    } request;
};

TEST_F(LateCheck, is_settled_as_one_that_got_its_answer_in_time)
{
    redis::PendingCall& reply = send(false);
    client.away = true;
    pass(20s);
    request.late->left().settle(0, 0, 5);
    EXPECT_TRUE(loop.keeps_process()) << "70 s after the process began to leave";
    pass(50s);
    EXPECT_TRUE(loop.keeps_process());
    pass(12s);
    EXPECT_FALSE(loop.keeps_process()) << "it does not wait for a reply for ever";
    reply.release()->ended(redis::Fate::lost);
}

TEST_F(LateCheck, spares_no_key_if_redis_refuses_it)
{
    redis::PendingCall& reply = send(false);
    reply.release()->ended(redis::Fate::refused);
    EXPECT_EQ(client.messages.size(), 1U) << "no more than the check";
    EXPECT_TRUE(client.unsettled().empty());
}

TEST_F(LateCheck, spares_its_key_if_redis_may_have_executed_it_before)
{
    redis::PendingCall& reply = send(true);
    reply.release()->ended(redis::Fate::refused);
    EXPECT_EQ(client.messages.size(), 2U);
}

TEST_F(LateCheck, spares_its_key_whatever_the_answer_if_it_was_sent_again)
{
    std::string refused(8 * sizeof(std::int64_t), '\0');
    redisReply answer{};
    answer.type = REDIS_REPLY_STRING;
    answer.str = refused.data();
    answer.len = refused.size();
    redis::PendingCall& reply = send(true);
    EXPECT_TRUE(reply.release()->on_reply(answer));
    EXPECT_EQ(client.messages.size(), 2U);
}

}  // namespace
}  // namespace ratelimit
