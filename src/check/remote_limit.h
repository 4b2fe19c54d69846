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

/// The part of a limit of one request that Redis decides. It must not move until the check ends.
struct RemoteLimit : Receipt {
    Coalescer* coalescer = nullptr;  // null: the limit is not counted in Redis
    /// The real cost of the request is known later, and is settled then.
    bool settled_later = false;
    /// Of a concurrency limit with a cost: where this worker states what it holds.
    Holdings* holdings = nullptr;

    // Set by the reply, which also sets `taken_at`, and `now` to the same if that has a value.
    Verdict state;
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
