#pragma once

#include "check/remote_limit.h"
#include "check/runs.h"
#include "check/script_reply.h"
#include "check/shard_part.h"
#include "redis/client.h"

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ratelimit {

/// The late reply to a check whose requests did not wait any longer. Requests that the fail mode or
/// another limit refused in the meantime, or refuses later, are refunded when the reply has come.
/// Those that passed stay counted, and their real cost is settled then.
class LateReply final : public redis::Call, private redis::BatchPart {
public:
    /// The call: `limits` of one of its requests, `checks` as they were sent, and its requests.
    /// `batched`: what its reply is, if one request was decided by the script of its limits.
    LateReply(
        redis::Client& client, std::span<RemoteLimit* const> limits,
        std::span<const LimitCheck> checks, const Runs& runs,
        std::optional<redis::BatchFormat> batched, NodeTime node_time);

    /// It gets the reply, and lives until then, or until that is lost.
    static void await(const std::shared_ptr<LateReply>& late, redis::PendingCall& reply);

    /// A request of this run was refused. Once for each request that does not wait any longer.
    void refuse(std::size_t run) noexcept;
    /// A request of this run passed, and really cost this much in a limit.
    void settle(std::size_t run, std::size_t limit, std::int64_t cost) noexcept;

    /// The replies, by run and limit. They came while the requests `waiting` of the call still
    /// waited: some are refused, and the last one may have the lease.
    void answered(std::span<const KeyReply> replies, const PartList& waiting) noexcept;

    redis::BatchPart* batch_part() noexcept override { return batched_ ? this : nullptr; }
    bool on_reply(const redisReply& reply) noexcept override;
    bool on_part(std::string_view part) noexcept override;
    /// The reply is lost.
    void ended(redis::Fate) noexcept override;

private:
    struct Counted {
        std::int64_t requests = 0;
        microseconds reset{ 0 };
        std::int64_t refunded = 0;  // requests
        std::int64_t settled = 0;   // requests that passed
    };
    struct Cost {
        std::size_t run;
        std::size_t limit;
        std::int64_t cost;
    };

    // The call itself is never sent.
    std::string_view routing_key() const noexcept override { return limits_.front().redis_key; }
    void write(redis::CommandBuffer&) const override {}
    redis::ScriptId script() const noexcept override { return {}; }
    redis::BatchFormat format() const noexcept override { return *batched_; }
    void write_keys(redis::ScriptArguments&) const override {}
    void write_numbers(redis::ScriptArguments&) const override {}

    /// How long the count in Redis may have differed from what requests used.
    redis::milliseconds age() const noexcept { return client_.now() - began_; }
    void await_settlement();
    bool answered_late() noexcept;
    void refund_refused() noexcept;
    void settle_passed() noexcept;

    redis::Client& client_;
    std::string keys_;
    std::vector<Receipt> limits_;  // with the largest cost of the requests
    Runs runs_;
    std::optional<redis::BatchFormat> batched_;
    std::vector<KeyReply> replies_;
    std::vector<std::int64_t> refused_;  // requests, by run
    std::vector<std::int64_t> granted_;  // the same, by the reply
    std::vector<std::int64_t> leased_;   // the same: tokens that a request has
    std::vector<Cost> costs_;            // to be settled
    std::vector<Counted> counted_;       // by run and limit
    const NodeTime node_time_;
    redis::milliseconds began_;  // when the newest cost to settle became known
    bool answered_ = false;
    std::shared_ptr<LateReply> self_;        // while the reply is awaited
    std::list<redis::Unsettled> unsettled_;  // as long
};

}  // namespace ratelimit
