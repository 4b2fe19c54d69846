#pragma once

#include "check/holding.h"
#include "check/runs.h"
#include "check/script_reply.h"
#include "check/shard_part.h"

#include <algorithm>
#include <span>
#include <vector>

namespace ratelimit {

/// The holdings of one call: those of its concurrency limits. The call is a message of each.
class CallHoldings {
public:
    bool empty() const noexcept { return holdings_.empty(); }
    /// The call has ended.
    void clear() noexcept;
    /// The holding of the limit with this index in the call.
    void add(std::size_t limit, Holding& holding);

    /// Whether the call can be sent now.
    bool ready() const noexcept
    {
        return std::all_of(holdings_.begin(), holdings_.end(), [](const OfLimit& each) {
            return each.holding->ready();
        });
    }
    /// False: the call can be sent now. True: `waiter` waits until that may be so.
    bool wait(Holding::Waiter& waiter) noexcept;

    /// Call when the call is written.
    void before_write() noexcept;
    /// Call before the call is sent; and then one of the others, and `ended`.
    void begin() noexcept;
    void failed(bool executed) noexcept;
    void ended(bool timed_out) noexcept;

    /// The replies, by run and limit. The requests that still exist, `owners`, hold what was taken
    /// for them. False: a statement was ignored, and nothing was taken.
    bool answered(
        std::span<const LimitCheck> limits, std::span<const KeyReply> replies, const Runs& runs,
        const PartList& owners) noexcept;

private:
    struct OfLimit {
        std::size_t limit;
        Holding* holding;
    };

    std::vector<OfLimit> holdings_;
};

}  // namespace ratelimit
