#pragma once

#include "redis/call.h"

#include <deque>

namespace ratelimit::redis {

/// The client's record of a pending call. It outlives the call when that is forgotten or times out,
/// to take the reply that still comes.
struct PendingCall {
    Call* call = nullptr;        // null: no caller waits any more
    milliseconds sent{ 0 };      // 0: it is not written yet
    milliseconds deadline{ 0 };  // before it is written: by when it has to be answered in all
    std::chrono::steady_clock::time_point sent_precisely;
    unsigned command_size = 1;  // the number of records, from this one on, that share a command
    bool asking = false;        // sent with ASKING before it
    bool sent_again = false;    // after NOSCRIPT
    bool timed_out = false;
    PendingCall* next = nullptr;

    void hold(Call& held) noexcept
    {
        call = &held;
        held.pending_ = &call;
    }

    /// Lets go of the call and returns it; null: it was forgotten.
    Call* release() noexcept
    {
        Call* held = call;
        call = nullptr;
        if (held != nullptr) {
            held->pending_ = nullptr;
        }
        return held;
    }
};

/// Records in order of sending.
class CallQueue {
public:
    bool empty() const noexcept { return first_ == nullptr; }
    PendingCall* front() const noexcept { return first_; }

    void push(PendingCall& record) noexcept
    {
        record.next = nullptr;
        (first_ == nullptr ? first_ : last_->next) = &record;
        last_ = &record;
        ++size_;
    }

    PendingCall& pop() noexcept
    {
        PendingCall& record = *first_;
        first_ = record.next;
        --size_;
        return record;
    }

    std::size_t size() const noexcept { return size_; }

private:
    PendingCall* first_ = nullptr;
    PendingCall* last_ = nullptr;
    std::size_t size_ = 0;
};

/// Where records come from: memory that is used again, and freed with the client.
class RecordPool {
public:
    PendingCall& take()
    {
        if (free_ == nullptr) {
            return all_.emplace_back();
        }
        PendingCall& record = *free_;
        free_ = record.next;
        record = PendingCall{};
        return record;
    }

    /// Takes a record back. Its call, or null if that was forgotten.
    Call* end(PendingCall& record) noexcept
    {
        record.next = free_;
        free_ = &record;
        return record.release();
    }

private:
    std::deque<PendingCall> all_;
    PendingCall* free_ = nullptr;
};

/// Fails every call of a queue that has been taken off its connection. A call's owner may send,
/// forget or destroy calls meanwhile.
inline void fail_all(CallQueue queue, RecordPool& records, Failure failure) noexcept
{
    while (!queue.empty()) {
        if (Call* call = records.end(queue.pop())) {
            call->on_failure(failure);
        }
    }
}

}  // namespace ratelimit::redis
