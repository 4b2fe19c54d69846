#pragma once

#include "check/script_reply.h"
#include "check/shard_part.h"
#include "redis/client.h"

#include <memory>
#include <string>
#include <vector>

namespace ratelimit {

/// The script call for requests of the same keys and policies: one at a time is in flight, and the
/// requests that come meanwhile wait for the next. It has copies of all that it sends, since any of
/// the requests may be gone when it is written again.
class CoalescedCall : public redis::Call, private redis::BatchPart {
public:
    explicit CoalescedCall(redis::Client& client) noexcept : client_(client)
    {
        repeatable = true;  // at worst it counts twice
    }

    /// Sends the first request, whose keys and policies those of the others will be. False: it was
    /// not sent. `on_unused` is not called then.
    bool begin(ShardPart& first) noexcept;
    /// Whether a request can go in one call with the others.
    bool matches(const ShardPart& part) const noexcept;
    void wait(ShardPart& part) noexcept { waiting_.push_back(part); }

    redis::BatchPart* batch_part() noexcept final { return single() ? this : nullptr; }
    void write(redis::CommandBuffer& command) const final;
    std::string_view routing_key() const noexcept final { return limits_.front().redis_key; }
    unsigned request_count() const noexcept final;
    bool on_reply(const redisReply& reply) noexcept final;
    void on_failure(redis::Failure failure) noexcept final;

private:
    /// The last call has ended, and no request waits. It may begin again.
    virtual void on_unused() noexcept = 0;

    redis::ScriptId script() const noexcept final { return scripts_.single; }
    const redis::BatchFormat& format() const noexcept final { return batch_format; }
    void write_numbers(redis::ScriptArguments& arguments) const final;
    bool on_part(std::string_view part) noexcept final;

    bool single() const noexcept;
    void copy_limits(const ShardPart& part);
    bool send_waiting(bool after_timeout) noexcept;
    void arrange_waiting();
    void answer(ShardPart& part, const SeveralReply& reply) noexcept;
    void pass_on_lease(const SeveralReply& reply) noexcept;
    void fail_in_flight(ShardPart::End end) noexcept;
    void end(bool timed_out) noexcept;
    redis::milliseconds own_deadline(const ShardPart& part) const noexcept;
    bool overdue(const ShardPart& part) const noexcept;
    void watch_own_deadlines() noexcept;
    void fail_overdue() noexcept;

    redis::Client& client_;
    std::string keys_;                // of limits_, one after another
    std::vector<LimitCheck> limits_;  // without the costs
    CheckScripts scripts_;
    bool alone_ = true;
    Runs runs_;
    PartList in_flight_;
    PartList waiting_;
    std::unique_ptr<Timer> own_deadlines_;  // null: not needed yet
};

}  // namespace ratelimit
