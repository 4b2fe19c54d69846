#pragma once

#include "base/entry_table.h"
#include "check/limit_owner.h"
#include "check/receipt.h"
#include "check/script_reply.h"
#include "limit/run_reply.h"
#include "redis/call_queue.h"
#include "redis/client.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit {

class LeaseRenewals;

/// A check that belongs to no request: all that Redis grants are tokens of a lease. It is not sent
/// again if its connection is lost: tokens that Redis counted then lapse. In an EntryTable.
class LeaseRenewal final : public redis::Call {
public:
    explicit LeaseRenewal(LeaseRenewals& all) noexcept : all_(all) {}

    LeaseRenewal* next = nullptr;
    std::size_t hash = 0;

private:
    friend class LeaseRenewals;

    std::string_view routing_key() const noexcept override { return redis_key_; }
    void write(redis::CommandBuffer& command) const override;
    bool on_reply(const redisReply& reply) noexcept override;
    void ended(redis::Fate) noexcept override;
    /// No caller waits for the reply, so a late one is as good.
    void overdue(redis::PendingCall& reply) noexcept override
    {
        reply.goes_to(*this);
        tell_owner({});
    }
    /// No request waits for it.
    unsigned request_count() const noexcept override { return 0; }

    std::span<const LimitCheck> limits() const noexcept
    {
        return { static_cast<const LimitCheck*>(&limit_), 1 };
    }
    void tell_owner(const RunReply& answer) const noexcept
    {
        limit_.owner->lease_renewed(limit_, answer, sent_);
    }

    LeaseRenewals& all_;
    Receipt limit_;  // of the texts that follow
    std::string redis_key_;
    std::string key_;
    std::array<std::int64_t, 2> run_{};  // how many requests, and the cost of each
    microseconds sent_{ 0 };
};

/// The renewals of one client's leases, at most one of a key in flight. No request waits for them:
/// one that fails has no effect, and the next request without a token waits for Redis.
class LeaseRenewals {
public:
    explicit LeaseRenewals(redis::Client& client) noexcept : client_(client) {}
    LeaseRenewals(const LeaseRenewals&) = delete;
    LeaseRenewals& operator=(const LeaseRenewals&) = delete;

    /// Asks Redis for tokens for this number of requests, at least one, as that of `limit`, with
    /// its time. `now`: by the clock of the lease. The owner is notified later, or at once if
    /// nothing could be sent.
    void renew(const Receipt& limit, std::int64_t requests, microseconds now) noexcept;

    /// Whether none is in flight.
    bool idle() const noexcept { return calls_.size() == 0; }

    /// The most at one time, which bounds the memory.
    static constexpr std::size_t most = 16'384;

private:
    friend class LeaseRenewal;

    redis::Client& client_;
    EntryTable<LeaseRenewal> calls_;
    std::vector<KeyReply> replies_;  // of a call
};

}  // namespace ratelimit
