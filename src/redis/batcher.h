#pragma once

#include "redis/call_queue.h"

#include <functional>
#include <vector>

namespace ratelimit::redis {

/// Calls of one script and one shard that are sent in the same turn of the loop share a command and
/// its reply (BatchPart), which costs both sides less than a command for each. Gathers such calls
/// until their batch is full, a call of another shard follows, or the turn ends. Before any other
/// command of the turn, the batches of scripts that go first are written (Added::goes_first): what
/// was let in ahead of Redis (ahead=) is reported before it is checked. The others follow in the
/// order of their scripts.
class Batcher {
public:
    /// Writes calls as one command. False: out of memory, and the calls are untouched.
    using Write = std::function<bool(CallQueue& calls)>;

    /// `scripts` must outlive this object. `longest`: calls in a batch, at most.
    Batcher(const ScriptRegistry& scripts, Write write, std::size_t longest = 16);

    /// The number of calls that are not written yet.
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    /// Whether it can be added. False: its call is no part of a batch, or there is no memory.
    bool takes(const PendingCall& record) noexcept;
    /// A record whose call it takes. True: a batch is full, and was written.
    bool add(PendingCall& record) noexcept;
    /// Writes what must precede a command that is not added.
    void write_first() noexcept;
    /// Call at the end of the turn. Returns the calls that could not be written.
    CallQueue write_all() noexcept;
    /// From now on, each call is written as a command of its own.
    void stop_batching() noexcept { longest_ = 1; }
    /// Moves the calls that are not written to the end of a queue.
    void move_to(CallQueue& queue) noexcept;

private:
    struct Batch {
        CallQueue calls;
        bool goes_first = false;
        bool listed = false;  // in used_
    };
    void write(Batch& batch) noexcept;

    std::size_t longest_;
    Write write_;
    const ScriptRegistry& scripts_;
    std::vector<Batch> batches_;     // by ScriptId
    std::vector<std::size_t> used_;  // of batches_: those of this turn
    std::size_t size_ = 0;           // of all batches
    std::size_t first_ = 0;          // of those that go first
};

/// Writes the command of calls that share one, or of a single call, and notes its script.
void write_command(const CallQueue& calls, CommandBuffer& command);

/// Passes to a call its part of the reply to a command of `calls` calls. `part`: PendingCall::part.
/// False: malformed reply.
bool deliver(
    Call& call, BatchPart* part, const redisReply& reply, const Exchange& exchange,
    std::size_t index, std::size_t calls) noexcept;

/// Passes to the calls of a command its reply, and frees their records. A call to which the reply
/// is malformed is left to `malformed(call)`; then it returns false.
template <class Malformed>
bool deliver_all(
    CallQueue& command, const redisReply& reply, const Exchange& exchange, Malformed&& malformed)
{
    bool good = true;
    for (std::size_t index = 0, size = command.size(); index < size; ++index) {
        PendingCall& record = command.pop();
        BatchPart* const part = record.part;
        Call* const call = record.end();
        if (call != nullptr && !deliver(*call, part, reply, exchange, index, size)) {
            good = false;
            malformed(*call);
        }
    }
    return good;
}

}  // namespace ratelimit::redis
