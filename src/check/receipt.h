#pragma once

#include "check/script_call.h"
#include "redis/command.h"

#include <cstdint>
#include <string_view>

namespace ratelimit {

class LimitOwner;

/// All that is needed to settle a cost that Redis may count in a limit, also when the request is
/// gone. Who keeps it owns the texts.
struct Receipt : LimitCheck {
    std::string_view key;        // as the owner knows it
    microseconds taken_at{ 0 };  // when Redis decided, by the clock that decided
    std::uint32_t shard = 0;     // Client::shard_of its keys
    redis::ScriptId refund = redis::ScriptId::none;
    redis::ScriptId charge{};
    redis::ScriptId block = redis::ScriptId::none;
    const LimitOwner* owner = nullptr;  // null: none is notified
};

}  // namespace ratelimit
