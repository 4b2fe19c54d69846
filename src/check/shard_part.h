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

class CheckMessage;

/// Lets go of a message, which is made into another one when there is no reference to it, and the
/// client awaits no reply to it.
struct LetGo {
    void operator()(CheckMessage* message) const noexcept;
};
using MessageRef = std::unique_ptr<CheckMessage, LetGo>;

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

/// The limits of one request whose keys are in one shard. One message decides them, possibly
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
    redis::milliseconds since{ 0 };        // when it was sent first, by Client::now; 0: it was not
    bool shared = false;  // the request has other parts: if one refuses, this one is refunded

    // Set by its message.
    End end = End::pending;
    Lease lease;
    MessageRef late;              // the message that it left, because its time was over
    Runs::Position position;      // in the message
    bool maybe_executed = false;  // by a message that will have no reply
    bool ignored_before = false;  // Redis had ignored the statement it was a part of
};

using PartList = List<ShardPart>;

/// Whether Redis counted the request, by its reply: none of the enforced limits refused.
inline bool counted(const ShardPart& part) noexcept
{
    return part.end == ShardPart::End::answered
        && std::ranges::all_of(part.limits, [](const RemoteLimit* limit) {
               return limit->shadow || limit->state.granted;
           });
}

/// Notifies the requests of these parts, which may destroy any of them.
inline void notify(PartList& ended) noexcept
{
    while (!ended.empty()) {
        ended.pop_front().ended();
    }
}

}  // namespace ratelimit
