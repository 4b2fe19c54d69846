#include "redis/call.h"

namespace ratelimit::redis {

Call::~Call()
{
    if (pending_ != nullptr) {
        *pending_ = nullptr;
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
    case Failure::slot_migrating:
        return "keys of a slot that is being moved";
    }
    return "unknown failure";
}

}  // namespace ratelimit::redis
