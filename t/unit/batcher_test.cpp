// Calls that share a command: when they are written, and how their reply is taken apart.

#include "client_fixture.h"
#include "redis/batcher.h"
#include "resp_reply.h"

#include <deque>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

/// One of a batch whose replies have two bytes each.
class BatchedCall final : public EchoCall, public redis::BatchPart {
public:
    explicit BatchedCall(const std::string& key) : EchoCall("", {}, key) {}

    redis::BatchPart* batch_part() noexcept override { return this; }
    redis::ScriptId script() const noexcept override { return {}; }
    const redis::BatchFormat& format() const noexcept override { return format_; }
    void write_numbers(redis::ScriptArguments& arguments) const override
    {
        arguments.packed(std::array<std::int64_t, 1>{ 7 });
    }
    bool on_part(std::string_view part) noexcept override
    {
        answer = part;
        return part != "no";
    }

private:
    const redis::BatchFormat format_{ 1, 2 };
};

class BatcherTest : public testing::Test {
protected:
    void add(bool asking = false)
    {
        redis::PendingCall& record = records_.take();
        record.hold(calls_.emplace_back("key" + std::to_string(calls_.size())));
        record.asking = asking;
        batcher_.add({}, record);
    }

    bool write(redis::CallQueue& calls)
    {
        if (out_of_memory_) {
            return false;
        }
        written_.push_back(calls.size());
        redis::write_command(calls, command_);
        while (!calls.empty()) {
            records_.end(calls.pop());
        }
        return true;
    }

    bool out_of_memory_ = false;
    std::vector<std::size_t> written_;  // calls of each command
    std::vector<redis::ScriptDigest> digests_{ redis::ScriptDigest{} };
    redis::CommandBuffer command_{ digests_ };
    redis::RecordPool records_;
    std::deque<BatchedCall> calls_;
    redis::Batcher batcher_{ 1, 3, records_,
                             [this](redis::CallQueue& calls) { return write(calls); } };
};

using Sizes = std::vector<std::size_t>;

TEST_F(BatcherTest, writes_a_batch_when_it_is_full_and_the_rest_when_the_turn_ends)
{
    for (int i = 0; i < 4; ++i) {
        add();
    }
    EXPECT_EQ(written_, Sizes{ 3 });
    EXPECT_EQ(batcher_.size(), 1U);
    EXPECT_TRUE(batcher_.write_all().empty());
    EXPECT_EQ(written_, (Sizes{ 3, 1 }));
    EXPECT_TRUE(batcher_.empty());
}

TEST_F(BatcherTest, leaves_out_calls_that_were_forgotten_meanwhile)
{
    add();
    add();
    calls_.pop_front();
    batcher_.write_all();
    EXPECT_EQ(written_, Sizes{ 1 });
    add();
    calls_.clear();
    batcher_.write_all();
    EXPECT_EQ(written_, Sizes{ 1 });
}

TEST_F(BatcherTest, writes_a_call_that_follows_asking_by_itself)
{
    add();
    add(true);
    EXPECT_EQ(written_, (Sizes{ 1, 1 }));
}

TEST_F(BatcherTest, writes_calls_one_by_one_where_batches_are_refused)
{
    batcher_.stop_batching();
    add();
    add();
    EXPECT_EQ(written_, (Sizes{ 1, 1 }));
}

TEST_F(BatcherTest, returns_the_calls_that_could_not_be_written)
{
    out_of_memory_ = true;
    for (int i = 0; i < 3; ++i) {
        add();
    }
    EXPECT_EQ(batcher_.size(), 3U);
    EXPECT_EQ(batcher_.write_all().size(), 3U);
    EXPECT_TRUE(batcher_.empty());
}

TEST_F(BatcherTest, puts_keys_and_numbers_of_a_batch_into_one_command)
{
    add();
    add();
    batcher_.write_all();
    const std::string text(command_.text());
    EXPECT_TRUE(text.starts_with("*6\r\n$7\r\nEVALSHA\r\n"));
    EXPECT_NE(text.find("$1\r\n2\r\n$4\r\nkey0\r\n$4\r\nkey1\r\n$16\r\n"), std::string::npos);
}

TEST_F(BatcherTest, gives_each_call_its_part_of_the_reply)
{
    BatchedCall call("key");
    const auto reply = reply_of("$4\r\nabno\r\n");
    EXPECT_TRUE(redis::deliver(call, *reply, 0, 2));
    EXPECT_EQ(call.answer, "ab");
    EXPECT_FALSE(redis::deliver(call, *reply, 1, 2)) << "the call does not accept it";
    EXPECT_FALSE(redis::deliver(call, *reply, 0, 3)) << "too short";
    EXPECT_FALSE(redis::deliver(call, *reply_of("*1\r\n:1\r\n"), 0, 1)) << "no string";
}

}  // namespace
}  // namespace ratelimit
