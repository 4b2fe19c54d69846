#pragma once

#include "base/free_list.h"
#include "redis/call.h"

namespace ratelimit::redis {

/// The client's record of a pending call. If the call is destroyed or times out, the record stays
/// until the reply has arrived.
struct PendingCall : FromFreeList<PendingCall> {
    enum class Kind : std::uint8_t {
        call,
        probe,  // its reply does not prove that calls are answered
        order,  // TIME, without a call, to see whether each reply is that to its command
    };

    Call* call = nullptr;        // null: no caller waits for the reply
    BatchPart* part = nullptr;   // of the call, while there is one; null: it shares no command
    milliseconds sent{ 0 };      // 0: not sent yet
    milliseconds deadline{ 0 };  // since it was sent
    microseconds sent_precisely{ 0 };
    unsigned command_size = 1;  // how many records, from this one on, share a command
    std::uint32_t shard = 0;    // of the call's keys
    std::size_t longest_reply = usual_reply;
    ScriptId by_digest = ScriptId::none;  // its command's script, if it is the first
    ScriptId missed = ScriptId::none;     // its commands have this script's text
    bool alone = false;                   // shares no command: Redis refused the one that it shared
    Kind kind = Kind::call;
    bool timed_out = false;
    PendingCall* next = nullptr;

    /// Whether a caller waits for the reply. After a timeout the call awaits a late one.
    bool awaited() const noexcept { return call != nullptr && !timed_out; }

    void attach(Call& held) noexcept
    {
        call = &held;
        part = held.batch_part();
        held.pending_ = &call;
    }

    /// The reply that comes after the deadline goes to this call (Call::overdue).
    void goes_to(Call& late) noexcept
    {
        attach(late);
        late.routing.written = true;
    }

    /// The call keeps its deadline if it is sent again.
    void keep_deadline() noexcept
    {
        if (call != nullptr && sent.count() != 0) {
            call->routing.expires = deadline;
        }
    }

    /// Unlinks the call from the record and returns it. Null: there is none.
    Call* release() noexcept
    {
        Call* held = call;
        call = nullptr;
        if (held != nullptr) {
            held->pending_ = nullptr;
        }
        return held;
    }
    /// The same, and frees the record.
    Call* end() noexcept
    {
        Call* const held = release();
        delete this;
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

/// Frees the records of a queue that no connection refers to, and visits each call with whether it
/// was sent. The owners of the calls may send and destroy calls meanwhile.
template <class Visit>
void release_all(CallQueue queue, Visit&& visit) noexcept
{
    while (!queue.empty()) {
        PendingCall& record = queue.pop();
        const bool sent = record.sent.count() != 0;
        if (Call* call = record.end()) {
            visit(*call, sent);
        }
    }
}

/// As release_all: ends the calls, which have no connection.
inline void end_all(const CallQueue& queue) noexcept
{
    release_all(queue, [](Call& call, bool) noexcept { call.end_unanswered(); });
}

}  // namespace ratelimit::redis
