#include "redis/call.h"

#include <utility>

namespace ratelimit::redis {

Call::~Call()
{
    abandon();
}

void Call::abandon() noexcept
{
    if (pending_ != nullptr) {
        *std::exchange(pending_, nullptr) = nullptr;
    }
}

std::string_view describe(Fate fate) noexcept
{
    switch (fate) {
    case Fate::refused:
    case Fate::failed:
        return "error reply";
    case Fate::one_by_one:
        return "keys of a slot that is being moved";
    case Fate::unsent:
    case Fate::lost:
        return "no connection";
    case Fate::expired:
    case Fate::overdue:
        return "no reply in time";
    }
    return "unknown fate";
}

}  // namespace ratelimit::redis
