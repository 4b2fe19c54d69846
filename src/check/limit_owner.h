#pragma once

#include "limit/key_answer.h"
#include "limit/run_reply.h"

#include <cstdint>
#include <string_view>

namespace ratelimit {

struct Receipt;

/// The owner of a limit: counts blocks, and keeps Redis's answers about its keys in the memory of
/// this node. Must outlive the client's calls.
class LimitOwner {
public:
    virtual void block_began() const noexcept {}
    /// Units were returned or a block was lifted: refusals of this key that are remembered are
    /// stale.
    virtual void refunded(std::string_view /*key*/) const noexcept {}

    /// Of a zone with ahead=: Redis has counted units of the key, and answered. `unanswered`: the
    /// units of the key that this worker has let in and that have no answer yet.
    virtual void ahead_answered(
        const Receipt&, const KeyAnswer&, std::int64_t /*unanswered*/) const noexcept
    {
    }
    /// A connection was lost: Redis may have counted units of the key or not.
    virtual void ahead_uncertain(const Receipt&) const noexcept {}

    /// Of a zone with lease=: a renewal has ended. Redis granted `answer.taken` requests of this
    /// cost, 0 if it failed. `sent`: a lower bound of the time at which they were counted.
    virtual void lease_renewed(
        const Receipt&, const RunReply& /*answer*/, microseconds /*sent*/) const noexcept
    {
    }

protected:
    ~LimitOwner() = default;
};

}  // namespace ratelimit
