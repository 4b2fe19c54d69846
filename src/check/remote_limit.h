#pragma once

#include "check/holding.h"
#include "check/limit_owner.h"
#include "check/receipt.h"
#include "check/script_call.h"
#include "check/sequence_scripts.h"
#include "redis/call.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ratelimit {

class Coalescer;

/// The time since the epoch by this node's clock.
using NodeTime = std::chrono::microseconds (*)() noexcept;

/// The ids of the scripts that check a limit, and change its count later.
struct CheckScripts {
    redis::ScriptId several{};  // for the algorithms of all limits that are checked together
    redis::ScriptId refund = redis::ScriptId::none;
    SequenceScripts* sequences = nullptr;  // null: `several` decides every request
    std::size_t bit = 0;                   // the limit's, in `sequences`
    redis::ScriptId charge{};
    redis::ScriptId statement = redis::ScriptId::none;  // of a concurrency limit
    redis::ScriptId block = redis::ScriptId::none;      // of a limit with a block
    redis::ScriptId report{};                           // of a limit of a zone with ahead=

    /// Whether the check counts nothing, and nothing is settled: the API looks at a key.
    bool only_look() const noexcept
    {
        return refund == redis::ScriptId::none && statement == redis::ScriptId::none;
    }
};

/// The part of a limit of one request that Redis decides. It must not move until the check ends.
struct RemoteLimit : LimitCheck {
    Coalescer* coalescer = nullptr;  // null: the limit is not counted in Redis
    const LimitOwner* owner = nullptr;
    std::string_view key;  // as it is counted; may be binary
    CheckScripts scripts;
    /// The real cost of the request is known later, and is settled then.
    bool settled_later = false;
    std::uint32_t shard = 0;  // of its key; set by Check
    /// Of a concurrency limit with a cost: where this worker states what it holds.
    Holdings* holdings = nullptr;

    // Set by the reply, which also sets `now`, if that has a value, to the time of the decision.
    Verdict state;
    microseconds taken_at{ 0 };  // that time, also by Redis's clock, if it may be refunded
    Verdict without;  // if the request was counted and may be refunded: the state without it
    /// If the request is refused, a block of the key begins: this limit refuses it by its counts
    /// and not by a reserve, and was sent once. Or a block that lasts for too long is to be
    /// shortened.
    bool begins_block = false;
    bool spared = false;   // no refusal begins a block now
    bool ignored = false;  // the statement of a concurrency limit: `state` says nothing of its key
    /// Sets both, after `state`. `stored`: what is left of the key's block in Redis. `doubtful`: it
    /// may be refused because of earlier units of the same call, which was sent again, or of counts
    /// by the clock of another server.
    void note_block(microseconds stored, bool spares, bool doubtful) noexcept
    {
        spared = spared || spares;
        const bool counts_refuse =
            stored.count() == 0 && !doubtful && !spared && policy.reserve == 0;
        begins_block = policy.block.count() > 0 && !state.granted && !shadow
            && (counts_refuse || stored > policy.block);
    }

    GrantedUnits held;  // of a concurrency limit

    /// Refers to the keys of this limit.
    Receipt receipt() const noexcept
    {
        return {
            *this, key, taken_at, shard, scripts.refund, scripts.charge, scripts.block, owner
        };
    }
};

/// The script of exactly these limits. Null: there is none.
inline const SequenceScripts::Sequence* sequence_of(std::span<RemoteLimit* const> limits) noexcept
{
    SequenceScripts* scripts = limits.front()->scripts.sequences;
    std::size_t bits = 0;
    for (const RemoteLimit* limit : limits) {
        if (limit->scripts.sequences != scripts || limit->block_apart) {
            return nullptr;
        }
        bits |= limit->scripts.bit;
    }
    return scripts == nullptr ? nullptr : scripts->of(bits);
}

}  // namespace ratelimit
