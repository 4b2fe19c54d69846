// Calls that share a command: when they are written, and how the reply is split.

#include "client_fixture.h"
#include "redis/batcher.h"
#include "resp_reply.h"

#include <deque>

#include <gtest/gtest.h>

namespace ratelimit {
namespace {

using namespace std::string_literals;

/// A call of a batch whose replies have two bytes each.
class BatchedCall final : public EchoCall, public redis::BatchPart {
public:
    explicit BatchedCall(const std::string& key, redis::ScriptId script = {})
        : EchoCall("", {}, key), of_(script)
    {
    }

    redis::BatchPart* batch_part() noexcept override { return this; }
    redis::ScriptId script() const noexcept override { return of_; }
    void before_write() noexcept override { ++prepared; }
    const redis::BatchFormat& format() const noexcept override { return form; }
    void write_keys(redis::ScriptArguments& arguments) const override
    {
        arguments.key(routing_key());
    }
    void write_numbers(redis::ScriptArguments& arguments) const override
    {
        arguments.packed(std::array<std::int64_t, 1>{ number });
    }
    bool on_part(redis::ReplyPart part) noexcept override
    {
        answer = std::string(part.own).append(part.shared);
        return part.own != "no";
    }

    int prepared = 0;
    std::int64_t number = 7;
    redis::BatchFormat form{ .reply_bytes = 2 };

private:
    redis::ScriptId of_;
};

class BatcherTest : public testing::Test {
protected:
    ~BatcherTest() override { end_all(batcher_.write_all()); }

    redis::PendingCall& record()
    {
        auto& record = *new redis::PendingCall;
        record.attach(calls_.emplace_back("key" + std::to_string(calls_.size())));
        return record;
    }
    bool add() { return add(record()); }
    bool add(redis::PendingCall& record)
    {
        EXPECT_TRUE(batcher_.takes(record));
        return batcher_.add(record);
    }

    bool write(redis::CallQueue& calls)
    {
        if (out_of_memory_) {
            return false;
        }
        written_.push_back(calls.size());
        redis::write_command(calls, command_);
        while (!calls.empty()) {
            calls.pop().end();
        }
        return true;
    }

    bool out_of_memory_ = false;
    std::vector<std::size_t> written_;  // calls of each command
    redis::ScriptRegistry scripts_;
    const redis::ScriptId script_ = scripts_.add("return 1");
    redis::CommandBuffer command_{ scripts_ };
    std::deque<BatchedCall> calls_;
    redis::Batcher batcher_{ scripts_, [this](redis::CallQueue& calls) { return write(calls); },
                             3 };
};

using Sizes = std::vector<std::size_t>;

TEST_F(BatcherTest, writes_a_batch_when_it_is_full_and_the_rest_when_the_turn_ends)
{
    EXPECT_FALSE(add());
    EXPECT_FALSE(add());
    EXPECT_TRUE(add()) << "it is full";
    EXPECT_FALSE(add());
    EXPECT_EQ(written_, Sizes{ 3 });
    EXPECT_EQ(batcher_.size(), 1U);
    EXPECT_TRUE(batcher_.write_all().empty());
    EXPECT_EQ(written_, (Sizes{ 3, 1 }));
    EXPECT_TRUE(batcher_.empty());
}

TEST_F(BatcherTest, leaves_out_calls_that_were_dropped)
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

TEST_F(BatcherTest, writes_a_call_after_asking_in_a_command_of_its_own)
{
    add();
    redis::PendingCall& asking = record();
    asking.call->routing.asking = true;
    EXPECT_FALSE(add(asking));
    EXPECT_EQ(written_, (Sizes{ 1, 1 }));
}

TEST_F(BatcherTest, writes_a_call_by_itself_that_redis_refused_with_others)
{
    add();
    redis::PendingCall& apart = record();
    apart.alone = true;
    EXPECT_FALSE(add(apart));
    add();
    EXPECT_EQ(written_, (Sizes{ 1, 1 }));
}

TEST_F(BatcherTest, puts_calls_of_one_shard_in_a_batch)
{
    for (const std::uint32_t shard : { 1, 1, 2, 2, 1 }) {
        redis::PendingCall& call = record();
        call.shard = shard;
        add(call);
    }
    batcher_.write_all();
    EXPECT_EQ(written_, (Sizes{ 2, 2, 1 }));
}

TEST_F(BatcherTest, writes_single_calls_if_batches_are_refused)
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
    const redis::CallQueue unwritten = batcher_.write_all();
    EXPECT_EQ(unwritten.size(), 3U);
    end_all(unwritten);
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

TEST_F(BatcherTest, sends_equal_numbers_if_the_script_takes_them_so)
{
    BatchedCall first("key");
    BatchedCall second("key");
    const auto text = [&](std::int64_t number) {
        redis::CallQueue calls;
        for (BatchedCall* call : { &first, &second }) {
            call->form.numbers = 1;
            auto& record = *new redis::PendingCall;
            record.attach(*call);
            calls.push(record);
        }
        second.number = number;
        redis::write_command(calls, command_);
        while (!calls.empty()) {
            calls.pop().end();
        }
        return std::string(command_.text());
    };
    EXPECT_NE(text(7).find("key\r\n$8\r\n"), std::string::npos);
    EXPECT_TRUE(text(7).ends_with("\x1c@\r\n")) << "of 7.0";
    EXPECT_NE(text(8).find("key\r\n$16\r\n"), std::string::npos);
    EXPECT_TRUE(text(8).ends_with("\x1c@\0\0\0\0\0\0 @\r\n"s)) << "of 7.0 and 8.0";
}

TEST_F(BatcherTest, gives_each_call_after_its_part_the_end_that_all_share)
{
    BatchedCall call("key");
    call.form.shared_bytes = 3;
    const auto reply = reply_of("$7\r\nabcdend\r\n");
    EXPECT_TRUE(redis::deliver(call, &call, *reply, {}, 0, 2));
    EXPECT_EQ(call.answer, "abend");
    EXPECT_TRUE(redis::deliver(call, &call, *reply, {}, 1, 2));
    EXPECT_EQ(call.answer, "cdend");
    EXPECT_FALSE(redis::deliver(call, &call, *reply, {}, 0, 3)) << "too short";
    EXPECT_FALSE(redis::deliver(call, &call, *reply_of("$4\r\nabcd\r\n"), {}, 0, 2)) << "no end";
}

TEST_F(BatcherTest, gives_each_call_its_part_of_the_reply)
{
    BatchedCall call("key");
    const auto reply = reply_of("$4\r\nabno\r\n");
    EXPECT_TRUE(redis::deliver(call, &call, *reply, {}, 0, 2));
    EXPECT_EQ(call.answer, "ab");
    EXPECT_FALSE(redis::deliver(call, &call, *reply, {}, 1, 2)) << "the call does not accept it";
    EXPECT_FALSE(redis::deliver(call, &call, *reply, {}, 0, 3)) << "too short";
    EXPECT_FALSE(redis::deliver(call, &call, *reply_of("*1\r\n:1\r\n"), {}, 0, 1))
        << "not a string";
}

/// Reports of what passed ahead of Redis (ahead=) must come before the checks of a turn, whichever
/// script was added first.
class BatcherOrder : public testing::Test {
protected:
    ~BatcherOrder() override { batcher_.write_all(); }  // ends the calls that wait

    bool add(redis::ScriptId script)
    {
        auto& record = *new redis::PendingCall;
        record.attach(calls_.emplace_back("key", script));
        EXPECT_TRUE(batcher_.takes(record));
        return batcher_.add(record);
    }

    redis::ScriptRegistry scripts_;
    const redis::ScriptId check_ = scripts_.add("check");
    const redis::ScriptId report_ = scripts_.add("report", redis::Added::goes_first);
    std::deque<BatchedCall> calls_;
    std::vector<redis::ScriptId> order_;
    redis::Batcher batcher_{ scripts_,
                             [this](redis::CallQueue& calls) {
                                 order_.push_back(calls.front()->call->batch_part()->script());
                                 while (!calls.empty()) {
                                     calls.pop().end();
                                 }
                                 return true;
                             },
                             4 };
};

using Order = std::vector<redis::ScriptId>;

TEST_F(BatcherOrder, reports_are_written_before_the_checks_of_a_turn)
{
    for (int i = 0; i < 3; ++i) {
        add(check_);
        add(report_);
    }
    const redis::ScriptId later = scripts_.add("made when it is used");
    add(later);
    EXPECT_TRUE(batcher_.write_all().empty());
    EXPECT_EQ(order_, (Order{ report_, check_, later }));
}

TEST_F(BatcherOrder, reports_are_written_before_a_full_batch_of_checks)
{
    add(report_);
    for (int i = 0; i < 3; ++i) {
        EXPECT_FALSE(add(check_));
    }
    EXPECT_TRUE(add(check_));
    EXPECT_EQ(order_, (Order{ report_, check_ }));
    EXPECT_TRUE(batcher_.empty());
}

TEST_F(BatcherOrder, reports_are_written_before_a_command_of_its_own)
{
    add(check_);
    add(report_);
    batcher_.write_first();
    EXPECT_EQ(order_, Order{ report_ });
    EXPECT_EQ(batcher_.size(), 1U);
}

TEST_F(BatcherTest, prepares_each_call_once_before_its_command_is_written)
{
    add();
    add();
    EXPECT_EQ(calls_[0].prepared + calls_[1].prepared, 0);
    batcher_.write_all();
    EXPECT_EQ(calls_[0].prepared, 1);
    EXPECT_EQ(calls_[1].prepared, 1);
}

}  // namespace
}  // namespace ratelimit
