#pragma once

#include "check/script_call.h"
#include "redis/call.h"

#include <cstdint>

namespace ratelimit {

class Coalescer;

/// The ids of the scripts that check and refund a limit.
struct CheckScripts {
    redis::ScriptId single{};
    redis::ScriptId several{};  // of all limits that are checked together
    redis::ScriptId refund{};
};

/// One limit of a request, as far as Redis decides it. It stays at its address until then.
struct RemoteLimit : LimitCheck {
    Coalescer* coalescer = nullptr;  // null: it is not counted in Redis
    CheckScripts scripts;
    std::uint32_t shard = 0;  // of its key; set by Check

    // Redis's decision, after which `now`, if there is one, is its time.
    Verdict state;
    Verdict without;  // if it counted the request, and may be refunded: as if it had not
};

}  // namespace ratelimit
