#pragma once

#include "base/free_list.h"
#include "check/holding.h"
#include "check/left_requests.h"
#include "redis/client.h"

#include <functional>
#include <string>
#include <vector>

namespace ratelimit {

/// One script call for requests with the same keys and policies. It copies all that it sends,
/// because the command may be written again after the requests have been destroyed.
///
/// When the time of a request is over, the request leaves the message. The message lives on until
/// Redis has answered or never will, and no request that left it refers to it any longer.
class CheckMessage final : public redis::Call, private redis::BatchPart {
public:
    /// Makes the messages for some keys, one after another.
    class Queue {
    public:
        /// How many requests wait for the next message that are overdue. They fail with this one if
        /// it times out.
        virtual unsigned overdue() const noexcept = 0;
        /// No request waits for the message any longer. The parts in `again` come first in the next
        /// message, which is sent before the parts in `ended` are notified: that may take time and
        /// send other checks.
        virtual void message_ended(bool timed_out, PartList& again, PartList& ended) noexcept = 0;

    protected:
        ~Queue() = default;
    };

    /// A message with the limits of this request. Throws if there is no memory, or as Holdings::of.
    static MessageRef make(
        redis::Client& client, NodeTime node_time, Queue& queue, const ShardPart& first);

    /// Whether a request has the same keys and policies.
    bool matches(const ShardPart& part) const noexcept;
    /// The first holding for which its queue must wait. Null: it can be sent.
    Holding* busy_holding(const Holding::Waiter& queue) const noexcept;
    bool has_several_holdings() const noexcept { return holdings_.size() > 1; }
    /// Calls `visit`, which may be a member function of Holding, with the holding of each of its
    /// concurrency limits.
    template <class Visit>
    void each_holding(Visit&& visit) const
    {
        for (const OfLimit& each : holdings_) {
            std::invoke(visit, *each.holding);
        }
    }

    /// Takes as many of these requests, at least one, as fit. The message has the time of the last
    /// one, and requests the lease that it wants.
    void take(PartList& waiting);
    bool used() const noexcept { return runs_.requests() > 0; }
    /// False: it was not sent.
    bool send() noexcept;
    /// The requests that wait for the reply.
    const PartList& requests() const noexcept { return requests_; }
    /// The request fails, and does not wait for the reply any longer.
    void leave(ShardPart& request);
    /// The requests that have left.
    LeftRequests& left() noexcept { return left_; }
    /// The queue is destroyed: the message has no queue to notify.
    void drop() noexcept;

    redis::BatchPart* batch_part() noexcept override { return in_sequence() ? this : nullptr; }
    void before_write() noexcept override { each_holding(&Holding::before_write); }
    void write(redis::CommandBuffer& command) const override;
    std::string_view routing_key() const noexcept override { return limits_.front().redis_key; }
    unsigned request_count() const noexcept override;
    bool on_reply(const redisReply& reply) noexcept override;
    void ended(redis::Fate fate) noexcept override;
    void overdue(redis::PendingCall& reply) noexcept override;

    CheckMessage* next = nullptr;  // of the ReusePool

private:
    friend LetGo;

    struct OfLimit {
        std::size_t limit;
        Holding* holding;
    };

    redis::ScriptId script() const noexcept override { return sequence_->script; }
    const redis::BatchFormat& format() const noexcept override { return sequence_->format; }
    void write_keys(redis::ScriptArguments& arguments) const override;
    void write_numbers(redis::ScriptArguments& arguments) const override;
    void write_own_numbers(redis::ScriptArguments& arguments) const override;
    bool on_part(redis::ReplyPart part) noexcept override;

    MessageRef reference() noexcept;
    void copy_limits(const ShardPart& part);
    /// Whether the script of its limits decides it: it is one request, and is sent for the first
    /// time.
    bool in_sequence() const noexcept
    {
        return sequence_ != nullptr && runs_.single() && !repeated();
    }
    bool repeated() const noexcept { return routing.sent_again || sent_before; }
    bool answered() noexcept;
    bool target_is_behind() const noexcept;
    void answer(ShardPart& part, bool behind) noexcept;
    void pass_on_lease() noexcept;
    void take_again(PartList& again, bool ShardPart::*reason) noexcept;
    void end(bool timed_out, PartList& again) noexcept;
    bool take_held_units() noexcept;
    void leave_holdings() noexcept;

    redis::Client* client_ = nullptr;
    NodeTime node_time_ = nullptr;
    Queue* queue_ = nullptr;          // null: no request waits for it
    unsigned references_ = 0;         // MessageRefs
    std::string keys_;                // the keys of limits_ and of their blocks, concatenated
    std::vector<LimitCheck> limits_;  // their costs are not used: runs_ has them
    redis::ScriptId several_{};
    const SequenceScripts::Sequence* sequence_ = nullptr;  // null: these limits have none
    std::vector<OfLimit> holdings_;                        // the holdings of its concurrency limits
    PartList requests_;
    Runs runs_;
    std::vector<KeyReply> replies_;  // by run and limit
    LeftRequests left_{ runs_, replies_ };
};

}  // namespace ratelimit
