// A check that was sent again, and whose keys a slot migration separates then: its limits are
// checked one by one. Redis may have executed its first call, which must not refuse it.

#include "check/check.h"
#include "holding_fixture.h"

#include <array>
#include <deque>

namespace ratelimit {
namespace {

using redis::Fate;

class MigratingSlot : public HoldingTest, public Check::Owner {
protected:
    void TearDown() override
    {
        check_.reset();
        limits_.clear();  // what they hold is released while the worker is there
        HoldingTest::TearDown();
    }
    void checked() noexcept override { ended_ = true; }

    RemoteLimit& add_limit(std::string_view key)
    {
        RemoteLimit& limit = limits_.emplace_back(limit_of(of_, key, 1));
        limit.policy = { Algorithm::fixed_window, { 1, 24h }, {}, {}, {} };
        limit.scripts.sequences = nullptr;  // `several` decides it
        limit.holdings = nullptr;
        return limit;
    }
    RemoteLimit& add_concurrency(std::string_view key)
    {
        RemoteLimit& limit = limits_.emplace_back(limit_of(of_, key, 1));
        limit.scripts.sequences = nullptr;
        return limit;
    }

    void send()
    {
        for (RemoteLimit& limit : limits_) {
            pointers_.push_back(&limit);
        }
        check_.emplace(pointers_, *this);
        ASSERT_TRUE(check_->send());
        ASSERT_EQ(messages().size(), 1U);
    }
    std::list<Message>& messages() { return of_.client.messages; }
    void execute_without_reply() { execute(messages().front().command); }
    void fail_first(Fate fate)
    {
        take(of_, messages().begin(), [fate](Message& message) { fail(message, fate); });
    }
    /// Both limits are checked alone.
    void answer_all()
    {
        ASSERT_EQ(messages().size(), 2U);
        HoldingTest::answer_all(of_);
        ASSERT_TRUE(ended_);
    }

    Worker& of_ = add_worker();
    std::deque<RemoteLimit> limits_;
    std::vector<RemoteLimit*> pointers_;
    std::optional<Check> check_;
    bool ended_ = false;
};

TEST_F(MigratingSlot, the_only_request_of_its_keys_passes_although_its_first_reply_was_lost)
{
    const RemoteLimit& one = add_limit("{k}1");
    const RemoteLimit& other = add_limit("{k}2");
    send();
    execute_without_reply();
    messages().front().record.call->routing.sent_again = true;  // on a new connection
    fail_first(Fate::one_by_one);
    answer_all();
    EXPECT_TRUE(one.state.granted);
    EXPECT_TRUE(other.state.granted);
}

TEST_F(MigratingSlot, the_only_request_of_its_keys_passes_also_if_it_holds_units)
{
    end(request(of_));
    settle();  // now the worker knows Redis's time
    const RemoteLimit& units = add_concurrency("{k}");
    const RemoteLimit& other = add_limit("{k}2");
    send();
    execute_without_reply();
    fail_first(Fate::lost);
    ASSERT_EQ(messages().size(), 1U) << "the same requests in another call";
    fail_first(Fate::one_by_one);
    answer_all();
    EXPECT_TRUE(units.state.granted);
    EXPECT_TRUE(other.state.granted);
}

TEST_F(MigratingSlot, a_request_that_was_not_sent_again_is_refused)
{
    const RemoteLimit& one = add_limit("{k}1");
    const RemoteLimit& other = add_limit("{k}2");
    send();
    execute_without_reply();
    fail_first(Fate::one_by_one);
    answer_all();
    EXPECT_FALSE(one.state.granted);
    EXPECT_FALSE(other.state.granted);
}

TEST_F(MigratingSlot, a_request_that_was_sent_again_is_not_sent_a_third_time)
{
    add_limit("{k}1");
    add_limit("{k}2");
    send();
    messages().front().record.call->routing.sent_again = true;
    fail_first(Fate::one_by_one);
    ASSERT_EQ(messages().size(), 2U);
    for (const Message& message : messages()) {
        EXPECT_FALSE(message.record.call->repeatable);
    }
    fail_first(Fate::lost);
    fail_first(Fate::lost);
    EXPECT_TRUE(messages().empty());
    EXPECT_TRUE(ended_);
}

TEST_F(MigratingSlot, each_key_of_a_request_without_a_reply_is_spared)
{
    const redis::ScriptId block = load(block_script());
    for (const auto& [key, block_key] :
         { std::pair{ "{k}1", "{k}1 block" }, std::pair{ "{k}2", "{k}2 block" } }) {
        RemoteLimit& limit = add_limit(key);
        limit.policy.block = 1h;
        limit.block_key = block_key;
        limit.now = virtual_now;
        limit.block_apart = true;  // it has been read
        limit.scripts.block = block;
    }
    send();
    execute_without_reply();
    messages().front().record.call->routing.sent_again = true;
    fail_first(Fate::one_by_one);
    ASSERT_EQ(messages().size(), 2U);
    fail_first(Fate::lost);
    fail_first(Fate::lost);
    ASSERT_TRUE(ended_);
    check_->refund(virtual_now);
    std::string spared;
    for (const Message& message : messages()) {
        spared += message.command;
    }
    EXPECT_NE(spared.find("{k}1 block"), std::string::npos);
    EXPECT_NE(spared.find("{k}2 block"), std::string::npos);
    HoldingTest::answer_all(of_);
}

TEST_F(MigratingSlot, a_block_that_began_since_does_not_refuse_a_request_that_was_sent_again)
{
    for (const bool again : { false, true }) {
        limits_.clear();
        pointers_.clear();
        ended_ = false;
        RemoteLimit& limit = add_limit(again ? "{k}1" : "{k}2");
        limit.policy.block = 1h;
        limit.block_key = again ? "{k}1 block" : "{k}2 block";
        limit.now = virtual_now;
        limit.scripts.block = load(block_script());
        send();
        execute_without_reply();
        const auto now = static_cast<double>(virtual_now.count());
        const std::array<double, 4> record{ now, now, now + 3600e6, 0 };
        const std::string value(reinterpret_cast<const char*>(record.data()), sizeof(record));
        server_.ask({ "SET", std::string(limit.block_key), value });
        messages().front().record.call->routing.sent_again = again;
        fail_first(Fate::one_by_one);
        ASSERT_EQ(messages().size(), 1U) << "the block is read";
        HoldingTest::answer_all(of_);
        EXPECT_TRUE(ended_);
        EXPECT_EQ(limit.state.granted, again);
        check_.reset();
    }
}

}  // namespace
}  // namespace ratelimit
