#pragma once

#include "base/list.h"
#include "check/remote_limit.h"
#include "check/runs.h"
#include "limit/run_reply.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ratelimit {

class LateReply;

/// Tokens that Redis granted beyond the requests of a call, for later requests with the same limits
/// and costs as the one that has the lease.
struct Lease {
    std::vector<RunReply> replies;  // by limit, to the leased run; empty: there is no lease
    std::int64_t spent = 0;         // how many requests of that run, the first ones, are not tokens

    /// How many requests of the run were granted.
    std::int64_t granted() const noexcept
    {
        std::int64_t granted = 0;
        for (const RunReply& reply : replies) {
            granted = std::max(granted, reply.taken);  // a shadow limit may have counted fewer
        }
        return granted;
    }
};

/// The limits of one request whose keys are in one shard. One script call decides them, possibly
/// together with other requests for the same keys. A part may be destroyed at any time.
struct ShardPart : Link<ShardPart> {
    enum class End : std::uint8_t {
        pending,
        answered,
        failed,
        slot_migrating,  // failed, but one key at a time can be checked
    };

    virtual ~ShardPart() = default;
    /// The part has a reply or has failed. Called once after each Coalescer::send that returned
    /// true, and never from inside it.
    virtual void ended() noexcept = 0;

    // Set before the part is sent.
    std::span<RemoteLimit* const> limits;  // at least one
    std::int64_t lease_wanted = 0;         // tokens, for requests like this one
    redis::milliseconds expires{ 0 };      // by Client::now; 0: set when the part is sent

    // Set by the call.
    End end = End::pending;
    Lease lease;
    std::shared_ptr<LateReply> late;  // if it failed, but Redis may count it
    bool unknown = false;             // the same, but no reply will tell
    Runs::Position position;          // in the call
    bool sent_before = false;         // Redis may have executed it before
    bool ignored_before = false;      // Redis had ignored the statement it was a part of
};

using PartList = List<ShardPart>;

/// Sets how these parts end.
inline void set_end(PartList& parts, ShardPart::End end) noexcept
{
    parts.each([end](ShardPart& part) { part.end = end; });
}

/// These parts failed, and Redis may have executed them. `sent_again`: also before.
inline void note_unknown(PartList& parts, bool sent_again) noexcept
{
    parts.each([sent_again](ShardPart& part) {
        part.unknown = true;
        part.sent_before = part.sent_before || sent_again;
    });
}

}  // namespace ratelimit
