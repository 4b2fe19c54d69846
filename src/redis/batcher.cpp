#include "redis/batcher.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

Batcher::Batcher(const ScriptRegistry& scripts, Write write, std::size_t longest)
    : longest_(longest), write_(std::move(write)), scripts_(scripts)
{
}

bool Batcher::takes(const PendingCall& record) noexcept
try {
    const BatchPart* part = record.part;
    if (part == nullptr) {
        return false;
    }
    if (static_cast<std::size_t>(part->script()) >= batches_.size()) {
        const std::size_t scripts = scripts_.size();
        used_.reserve(scripts);
        batches_.reserve(scripts);
        while (batches_.size() < scripts) {
            const auto id = static_cast<ScriptId>(batches_.size());
            batches_.push_back({ .calls = {}, .goes_first = scripts_.at(id).goes_first });
        }
    }
    return static_cast<std::size_t>(part->script()) < batches_.size();
} catch (const std::exception&) {
    return false;
}

bool Batcher::add(PendingCall& record) noexcept
{
    const auto index = static_cast<std::size_t>(record.part->script());
    Batch& batch = batches_[index];
    // ASKING holds for one command.
    const bool by_itself = record.call->routing.asking || record.alone || longest_ == 1;
    if (!batch.calls.empty() && (by_itself || batch.calls.front()->shard != record.shard)) {
        write(batch);
    }
    if (!std::exchange(batch.listed, true)) {
        used_.push_back(index);
    }
    batch.calls.push(record);
    ++size_;
    first_ += batch.goes_first ? 1 : 0;
    const bool full = !by_itself && batch.calls.size() >= longest_;
    if (by_itself || full) {
        write(batch);
    }
    return full;
}

void Batcher::write_first() noexcept
{
    for (std::size_t i = 0; first_ > 0 && i < used_.size(); ++i) {
        if (batches_[used_[i]].goes_first) {
            write(batches_[used_[i]]);
        }
    }
}

CallQueue Batcher::write_all() noexcept
{
    std::sort(used_.begin(), used_.end());
    write_first();
    for (const std::size_t index : used_) {
        write(batches_[index]);
    }
    CallQueue unwritten;
    move_to(unwritten);
    return unwritten;
}

/// Writes a batch, without the calls that were destroyed meanwhile.
void Batcher::write(Batch& batch) noexcept
{
    if (!batch.goes_first) {
        write_first();
    }
    const std::size_t calls = batch.calls.size();
    size_ -= calls;
    first_ -= batch.goes_first ? calls : 0;
    CallQueue wanted;
    while (!batch.calls.empty()) {
        PendingCall& record = batch.calls.pop();
        if (record.call != nullptr) {
            wanted.push(record);
        } else {
            record.end();
        }
    }
    if (!wanted.empty() && !write_(wanted)) {
        size_ += wanted.size();
        first_ += batch.goes_first ? wanted.size() : 0;
        batch.calls = wanted;
    }
}

void Batcher::move_to(CallQueue& queue) noexcept
{
    for (const std::size_t index : used_) {
        Batch& batch = batches_[index];
        batch.listed = false;
        while (!batch.calls.empty()) {
            queue.push(batch.calls.pop());
        }
    }
    used_.clear();
    size_ = 0;
    first_ = 0;
}

namespace {

void write_batch(const CallQueue& calls, const BatchPart& part, CommandBuffer& command)
{
    const BatchFormat& format = part.format();
    command.begin_script(
        part.script(), { calls.size() * format.keys, format.own_numbers ? 2U : 1U });
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->part->write_keys(command);
    }
    command.begin_packed();
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->part->write_numbers(command);
    }
    command.end_packed(format.numbers);
    if (!format.own_numbers) {
        return;
    }
    command.begin_packed();
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->part->write_own_numbers(command);
    }
    command.end_packed();
}

}  // namespace

void write_command(const CallQueue& calls, CommandBuffer& command)
{
    for (const PendingCall* record = calls.front(); record != nullptr; record = record->next) {
        record->call->before_write();
        if (record->missed != ScriptId::none) {
            command.use_text_of(record->missed);  // another server of a proxy's may have had it
        }
    }
    const BatchPart* part = calls.front()->part;
    part == nullptr ? calls.front()->call->write(command) : write_batch(calls, *part, command);
    calls.front()->by_digest = command.take_by_digest();
}

bool deliver(
    Call& call, BatchPart* part, const redisReply& reply, const Exchange& exchange,
    std::size_t index, std::size_t calls) noexcept
{
    call.routing.exchange = exchange;
    if (part == nullptr) {
        return call.on_reply(reply);
    }
    const BatchFormat& format = part->format();
    const std::size_t answers = calls * format.reply_bytes;
    return reply.type == REDIS_REPLY_STRING && reply.len == answers + format.shared_bytes
        && part->on_part({ { reply.str + index * format.reply_bytes, format.reply_bytes },
                           { reply.str + answers, format.shared_bytes } });
}

}  // namespace ratelimit::redis
