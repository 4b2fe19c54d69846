#pragma once

#include "check/call_holdings.h"
#include "check/late_reply.h"
#include "check/script_reply.h"
#include "check/shard_part.h"
#include "redis/client.h"

#include <memory>
#include <string>
#include <vector>

namespace ratelimit {

/// The script call for requests with the same keys and policies. One call is in flight at a time;
/// requests that arrive meanwhile wait for the next. It copies all that it sends, because the
/// command may be written again after the requests have been destroyed.
///
/// A call with a concurrency limit is a message of that key's Holding. It waits while the holding
/// has a statement in flight that it cannot be a part of, and is not sent again as it is: what it
/// states has changed then.
class CoalescedCall : public redis::Call, private redis::BatchPart, private Holding::Waiter {
public:
    CoalescedCall(redis::Client& client, NodeTime node_time) noexcept
        : client_(client), node_time_(node_time)
    {
    }

    /// Sends the first request. It sets the keys and policies that matches() requires of others.
    /// False: it was not sent, and `on_unused` is not called.
    bool begin(ShardPart& first) noexcept;
    /// Whether a request can share a call with the others.
    bool matches(const ShardPart& part) const noexcept;
    /// Call after on_unused, or if begin returned false.
    void leave_holdings() noexcept { holdings_.clear(); }
    /// Adds a request that matches to the next call.
    void wait(ShardPart& part) noexcept { waiting_.push_back(part); }

    redis::BatchPart* batch_part() noexcept final { return in_sequence() ? this : nullptr; }
    void before_write() noexcept final { holdings_.before_write(); }
    void write(redis::CommandBuffer& command) const final;
    std::string_view routing_key() const noexcept final { return limits_.front().redis_key; }
    unsigned request_count() const noexcept final;
    bool on_reply(const redisReply& reply) noexcept final;
    void ended(redis::Fate fate) noexcept final;
    void overdue(redis::PendingCall& reply) noexcept final;

private:
    /// The call has ended, and no request waits. begin() may be called again.
    virtual void on_unused() noexcept = 0;

    redis::ScriptId script() const noexcept final { return *sequence_; }
    redis::BatchFormat format() const noexcept final
    {
        return sequence_format(limits_.size(), numbers_, count_blocks(limits_));
    }
    void write_keys(redis::ScriptArguments& arguments) const final;
    void write_numbers(redis::ScriptArguments& arguments) const final;
    bool on_part(std::string_view part) noexcept final;
    void proceed(bool timed_out) noexcept final;

    bool in_sequence() const noexcept;
    bool repeated() const noexcept { return routing.sent_again || sent_before; }
    void copy_limits(const ShardPart& part);
    void point_to_keys() noexcept;
    void send_next(bool timed_out, PartList& ended) noexcept;
    bool send_waiting(bool after_timeout) noexcept;
    void arrange_waiting();
    bool answered() noexcept;
    void answer(ShardPart& part) noexcept;
    void pass_on_lease() noexcept;
    void let_go(ShardPart& part);
    void try_again(bool executed) noexcept;
    void end(bool timed_out) noexcept;
    redis::milliseconds own_deadline(const ShardPart& part) const noexcept;
    bool overdue(const ShardPart& part) const noexcept;
    void watch_own_deadlines() noexcept;
    void fail_overdue() noexcept;

    redis::Client& client_;
    const NodeTime node_time_;
    std::string keys_;                // the keys of limits_ and of their blocks, concatenated
    std::vector<LimitCheck> limits_;  // their costs are not used: runs_ has them
    redis::ScriptId several_{};
    std::optional<redis::ScriptId> sequence_;  // empty: these limits have no script of their own
    std::size_t numbers_ = 0;                  // numbers_of limits_
    CallHoldings holdings_;
    std::vector<KeyReply> replies_;  // by run and limit
    Runs runs_;
    std::shared_ptr<LateReply> late_;  // for requests that do not wait for the reply any longer
    PartList in_flight_;
    PartList waiting_;
    std::unique_ptr<Timer> own_deadlines_;  // null until it is needed
};

}  // namespace ratelimit
