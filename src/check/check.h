#pragma once

#include "base/free_list.h"
#include "check/shard_part.h"

#include <memory>
#include <optional>
#include <span>

namespace ratelimit {

/// The check of all limits of one request that Redis decides, with one script call for each shard.
/// If a limit of one shard refuses, what the other shards counted can be refunded.
class Check {
public:
    class Owner {
    public:
        virtual ~Owner() = default;
        /// Every limit has a reply or has failed. Never called from inside send.
        virtual void checked() noexcept = 0;
    };

    /// `limits`: at least one, elements of one array, in its order, in which each shard gets its
    /// limits. Sorts the pointers by shard. They and the limits must outlive this object.
    Check(std::span<RemoteLimit*> limits, Owner& owner);

    /// Call before send: requests a lease of up to this many tokens, for requests like this one.
    /// If the keys are on several servers, none is granted.
    void request_lease(std::int64_t tokens) noexcept
    {
        first_.lease_wanted = first_.next == nullptr ? tokens : 0;
    }

    /// False: nothing was sent, all limits have failed, and the owner is not notified.
    bool send() noexcept;

    /// Calls `visit` with each limit that has a reply. A shadow limit whose statement was ignored
    /// has none: its request is not sent again for that.
    template <class Visit>
    void each_answered(Visit&& visit)
    {
        each_part([&](const Part& part) {
            if (part.end == ShardPart::End::answered) {
                for (RemoteLimit* limit : part.limits) {
                    if (!limit->ignored) {
                        visit(*limit);
                    }
                }
            }
        });
    }

    /// Call after Owner::checked. Calls `keep` with each limit that has a lease, the reply to the
    /// leased run, and how many requests of the run, the first ones, are not tokens.
    template <class Keep>
    void each_leased(Keep&& keep)
    {
        const Lease& lease = first_.lease;
        for (std::size_t i = 0; i < lease.replies.size(); ++i) {
            keep(*first_.limits[i], lease.replies[i], lease.spent);
        }
    }

    /// The request is refused. Refunds the units of the shards that admitted it, and sets the
    /// states of their limits accordingly; those of late replies are refunded later. `now`: by this
    /// node's clock. False: there was nothing to refund.
    bool refund(microseconds now) noexcept;

    /// A request that passed has ended, and really cost this much in a limit without a reply:
    /// what Redis counts late is settled.
    void settle_late(const RemoteLimit& limit, std::int64_t cost) const noexcept;

private:
    struct Part final : ShardPart, FromFreeList<Part> {
        explicit Part(Check& owner) noexcept : check(owner) {}
        void ended() noexcept override { check.part_ended(*this); }

        Check& check;
        std::unique_ptr<Part> next;
        std::unique_ptr<redis::CommandCall> block;  // a BlockRead
    };
    class BlockRead;
    struct BlockState {
        microseconds left{ 0 };  // of the block; 0: the key is not blocked
        bool spared = false;     // no refusal begins a block now
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
    void end_if_done() noexcept;
    void send_one_by_one(Part& part) noexcept;
    void read_block(Part& part);
    void block_read(Part& part, std::optional<BlockState> state) noexcept;

    Owner& owner_;
    Part first_;
    std::size_t pending_ = 0;
};

}  // namespace ratelimit
