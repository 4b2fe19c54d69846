#include "redis/call.h"

#include "redis/pipeline.h"

namespace ratelimit::redis {

Call::~Call()
{
    if (pending_ != nullptr) {
        pending_->release();
    }
}

std::string_view describe(Failure failure) noexcept
{
    switch (failure) {
    case Failure::timeout:
        return "no reply in time";
    case Failure::connection:
        return "no connection";
    case Failure::error_reply:
        return "error reply";
    case Failure::keys_apart:
        return "keys of a slot that is being moved";
    }
    return "unknown failure";
}

void fail_all(CallQueue& queue, RecordPool& records, Failure failure) noexcept
{
    while (!queue.empty()) {
        PendingCall& record = queue.pop();
        Call* call = record.release();
        records.give_back(record);
        if (call != nullptr) {
            call->on_failure(failure);
        }
    }
}

}  // namespace ratelimit::redis
