#pragma once

#include "check/script_call.h"
#include "redis/command.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ratelimit {

class LimitOwner;
class SequenceScripts;

/// The ids of the scripts that check a limit, and change its count later.
struct CheckScripts {
    redis::ScriptId several{};  // for the algorithms of all limits that are checked together
    redis::ScriptId refund = redis::ScriptId::none;
    SequenceScripts* sequences = nullptr;  // null: `several` decides every request
    std::size_t bit = 0;                   // the limit's, in `sequences`
    redis::ScriptId charge{};              // of a limit with charge=, or of a zone with ahead=
    redis::ScriptId statement = redis::ScriptId::none;  // of a concurrency limit
    redis::ScriptId block = redis::ScriptId::none;      // of a limit with a block

    /// Whether the check counts nothing, and nothing is settled: the API looks at a key.
    bool only_look() const noexcept
    {
        return refund == redis::ScriptId::none && statement == redis::ScriptId::none;
    }
};

/// All that is needed to settle a cost that Redis may count in a limit, also when the request is
/// gone. Who keeps it owns the texts. `block_key` is empty with lease= and ahead=: these zones have
/// no block.
struct Receipt : LimitCheck {
    std::string_view key;           // as it is counted, and the owner knows it; may be binary
    std::uint64_t policy_hash = 0;  // by which the owner knows the policy
    microseconds taken_at{ 0 };     // when Redis decided, by the clock that decided
    std::uint32_t shard = 0;        // Client::shard_of its keys
    CheckScripts scripts;
    const LimitOwner* owner = nullptr;  // null: none is notified
};

}  // namespace ratelimit
