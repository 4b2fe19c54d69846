#pragma once

#include "check/free_list.h"
#include "check/shard_part.h"

#include <memory>
#include <span>

namespace ratelimit {

/// The check of all limits of one request that Redis decides: one script call for the limits of
/// each shard. What some shards took can be refunded when a limit of another refuses.
class Check {
public:
    class Owner {
    public:
        virtual ~Owner() = default;
        /// Every limit is answered or has failed. Never from inside send.
        virtual void checked() noexcept = 0;
    };

    /// `limits`: at least one, of one array, whose order decides. Sorts them; they must live as
    /// long as this.
    Check(std::span<RemoteLimit*> limits, Owner& owner);

    /// Before send: up to this many tokens may be leased, for requests like this one.
    void request_lease(std::int64_t tokens) noexcept;

    /// False: all limits have failed at once, and the owner is not notified.
    bool send() noexcept;

    /// Calls `visit` with each limit that has an answer.
    template <class Visit>
    void each_answered(Visit&& visit)
    {
        each_part([&](const Part& part) {
            if (part.end == ShardPart::End::answered) {
                for (RemoteLimit* limit : part.limits) {
                    visit(*limit);
                }
            }
        });
    }

    /// After the end: `keep` gets each limit that has a lease, the reply to the leased run, and how
    /// many of its requests are no tokens. A request of several shards has as many tokens as all of
    /// them granted: what one of them granted beyond that is refunded. `now`: by this node's clock.
    template <class Keep>
    void take_leases(microseconds now, Keep&& keep)
    {
        even_out_leases(now);
        each_part([&](const Part& part) {
            for (std::size_t i = 0; i < part.lease.replies.size(); ++i) {
                keep(*part.limits[i], part.lease.replies[i], part.lease.spent);
            }
        });
    }

    /// Refunds what was taken, also in the limits' states. `now`: by this node's clock. False:
    /// there is nothing to refund.
    bool refund(microseconds now) noexcept;

private:
    struct Part final : ShardPart, FromFreeList<Part> {
        explicit Part(Check& owner) noexcept : check(owner) {}
        void ended() noexcept override { check.part_ended(*this); }

        Check& check;
        std::unique_ptr<Part> next;
    };

    template <class Visit>
    void each_part(Visit&& visit)
    {
        for (Part* part = &first_; part != nullptr; part = part->next.get()) {
            visit(*part);
        }
    }
    Part& split(Part& part, std::size_t at);
    void send(Part& part) noexcept;
    void part_ended(Part& part) noexcept;
    void send_one_by_one(Part& part) noexcept;
    void even_out_leases(microseconds now) noexcept;

    Owner& owner_;
    Part first_;
    std::size_t pending_ = 0;
};

}  // namespace ratelimit
