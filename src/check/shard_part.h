#pragma once

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

/// A node of a PartList. The destructor removes it from the list.
class PartLink {
public:
    PartLink() noexcept : next_(this), previous_(this) {}
    ~PartLink() { leave(); }
    PartLink(const PartLink&) = delete;
    PartLink& operator=(const PartLink&) = delete;

private:
    friend class PartList;

    void leave() noexcept
    {
        next_->previous_ = previous_;
        previous_->next_ = next_;
        next_ = previous_ = this;
    }

    PartLink* next_;
    PartLink* previous_;
};

/// The limits of one request whose keys are in one shard. One script call decides them, possibly
/// together with other requests for the same keys. A part may be destroyed at any time.
struct ShardPart : PartLink {
    enum class End : std::uint8_t {
        pending,
        answered,
        failed,
        slot_migrating,  // failed, but the limits can be checked one by one
    };

    virtual ~ShardPart() = default;
    /// The part has a reply or has failed. Called once after each Coalescer::send that returned
    /// true, and never from inside it.
    virtual void ended() noexcept = 0;

    // Set before the part is sent.
    std::span<RemoteLimit* const> limits;  // at least one
    bool alone = true;                     // the request has no other parts, so it needs no refund
    std::int64_t lease_wanted = 0;         // tokens, for requests like this one
    redis::milliseconds expires{ 0 };      // by Client::now; 0: set when the part is sent

    // Set by the call.
    End end = End::pending;
    Lease lease;
    Runs::Position position;          // in the call
    std::shared_ptr<LateReply> late;  // if it failed, but Redis may count it
};

/// A queue of parts. It does not own them.
class PartList {
public:
    bool empty() const noexcept { return ends_.next_ == &ends_; }
    ShardPart& front() const noexcept { return *static_cast<ShardPart*>(ends_.next_); }
    ShardPart& back() const noexcept { return *static_cast<ShardPart*>(ends_.previous_); }
    void push_back(ShardPart& part) noexcept
    {
        PartLink& link = part;
        link.leave();
        link.next_ = &ends_;
        link.previous_ = ends_.previous_;
        ends_.previous_->next_ = &link;
        ends_.previous_ = &link;
    }
    void take_all(PartList& other) noexcept
    {
        while (!other.empty()) {
            push_back(other.front());
        }
    }
    ShardPart& pop_front() noexcept
    {
        ShardPart& part = front();
        static_cast<PartLink&>(part).leave();
        return part;
    }
    template <class Visit>
    void each(Visit&& visit) const
    {
        for (PartLink* link = ends_.next_; link != &ends_; link = link->next_) {
            visit(*static_cast<ShardPart*>(link));
        }
    }

private:
    PartLink ends_;
};

}  // namespace ratelimit
