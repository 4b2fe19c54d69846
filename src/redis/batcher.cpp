#include "redis/batcher.h"

#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

Batcher::Batcher(std::size_t scripts, RecordPool& records, Write write, std::size_t longest)
    : longest_(longest), records_(records), write_(std::move(write)), batches_(scripts)
{
}

bool Batcher::add(ScriptId script, PendingCall& record) noexcept
{
    CallQueue& batch = batches_[static_cast<std::size_t>(script)];
    // ASKING holds for one command.
    const bool by_itself = record.asking || record.alone || longest_ == 1;
    if (!batch.empty() && (by_itself || batch.front()->shard != record.shard)) {
        write(batch);
    }
    batch.push(record);
    ++size_;
    const bool full = !by_itself && batch.size() >= longest_;
    if (by_itself || full) {
        write(batch);
    }
    return full;
}

CallQueue Batcher::write_all() noexcept
{
    for (CallQueue& batch : batches_) {
        if (!batch.empty()) {
            write(batch);
        }
    }
    CallQueue unwritten;
    move_to(unwritten);
    return unwritten;
}

/// Writes a batch, without the calls that were destroyed meanwhile.
void Batcher::write(CallQueue& batch) noexcept
{
    size_ -= batch.size();
    CallQueue wanted;
    while (!batch.empty()) {
        PendingCall& record = batch.pop();
        if (record.call != nullptr) {
            wanted.push(record);
        } else {
            records_.end(record);
        }
    }
    if (!wanted.empty() && !write_(wanted)) {
        size_ += wanted.size();
        batch = wanted;
    }
}

void Batcher::move_to(CallQueue& queue) noexcept
{
    for (CallQueue& batch : batches_) {
        while (!batch.empty()) {
            queue.push(batch.pop());
        }
    }
    size_ = 0;
}

namespace {

void write_calls(const CallQueue& calls, CommandBuffer& command)
{
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->call->before_write();
    }
    Call& first = *calls.front()->call;
    const BatchPart* part = first.batch_part();
    if (part == nullptr) {
        first.write(command);
        return;
    }
    const BatchFormat format = part->format();
    command.begin_script(part->script(), { calls.size() * format.keys, 1 });
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->call->batch_part()->write_keys(command);
    }
    command.begin_packed(calls.size() * format.numbers);
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->call->batch_part()->write_numbers(command);
    }
    command.end_packed();
}

}  // namespace

void write_command(const CallQueue& calls, CommandBuffer& command)
{
    bool text = false;
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        text = text || record->sends_text;
    }
    command.name_by(text ? Script::text : Script::digest);
    write_calls(calls, command);
    const bool by_digest = !text && command.script();
    for (PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->calls_script = by_digest;
    }
}

bool deliver(Call& call, const redisReply& reply, std::size_t index, std::size_t calls) noexcept
{
    BatchPart* part = call.batch_part();
    if (part == nullptr) {
        return call.on_reply(reply);
    }
    const std::size_t bytes = part->format().reply_bytes;
    return reply.type == REDIS_REPLY_STRING && reply.len == calls * bytes
        && part->on_part({ reply.str + index * bytes, bytes });
}

}  // namespace ratelimit::redis
