#pragma once

#include "check/receipt.h"
#include "check/runs.h"
#include "check/script_reply.h"
#include "check/shard_part.h"
#include "redis/client.h"

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <vector>

namespace ratelimit {

/// The requests that left a message before its reply. When the reply is there, the costs of refused
/// ones are refunded, and the real costs of passed ones are settled.
class LeftRequests {
public:
    /// Both of the message. `replies`: by run and limit.
    LeftRequests(const Runs& runs, const std::vector<KeyReply>& replies) noexcept
        : runs_(runs), replies_(replies)
    {
    }

    bool any() const noexcept { return !receipts_.empty(); }
    /// For another message.
    void clear() noexcept;

    /// This request is one of them. `limits`: of the message, as they were sent.
    void add(
        redis::Client& client, NodeTime node_time, const ShardPart& part,
        std::span<const LimitCheck> limits);
    /// The reply is late.
    void await_reply();

    /// A request of this run was refused. Once for each that left.
    void refuse(std::size_t run) noexcept;
    /// A request of this run passed, and really cost this much in a limit.
    void settle(std::size_t run, std::size_t limit, std::int64_t cost) noexcept;

    /// The replies are there. The requests `waiting` have waited for them: some are refused, and
    /// the last one may have the lease. `again`: the message was sent again.
    void answered(const PartList& waiting, bool again) noexcept;
    /// There will be no reply.
    void lost(bool maybe_executed) noexcept;

private:
    enum class Reply : std::uint8_t { none, late, answered };

    /// Requests of a run, with the tokens that one of them has.
    struct Passed {
        std::int64_t all = 0;
        std::int64_t by_reply = 0;
    };
    /// Requests of a run whose count in a limit was changed.
    struct Changed {
        std::int64_t refunded = 0;
        std::int64_t settled = 0;
    };
    struct Cost {
        std::size_t run;
        std::size_t limit;
        std::int64_t cost;
    };

    /// How long the count in Redis may have differed from what requests used.
    redis::milliseconds age() const noexcept { return client_->now() - began_; }
    void update();
    template <class Visit>
    void each_count(Visit&& visit);
    void refund_refused() noexcept;
    void settle_passed() noexcept;

    const Runs& runs_;
    const std::vector<KeyReply>& replies_;
    redis::Client* client_ = nullptr;
    NodeTime node_time_ = nullptr;
    Reply reply_ = Reply::none;
    std::string keys_;                       // as the owners know them
    std::vector<Receipt> receipts_;          // by limit, with the largest cost of the requests
    std::vector<Passed> passed_;             // by run
    std::vector<Changed> changed_;           // by run and limit
    std::vector<Cost> costs_;                // to be settled
    bool settles_ = false;                   // counts can be changed
    bool owes_ = false;                      // there is one to be changed
    redis::milliseconds began_{ 0 };         // when the newest cost to settle became known
    std::list<redis::Unsettled> unsettled_;  // while the reply is late
};

}  // namespace ratelimit
