#include "check/late_reply.h"

#include "check/settlement.h"
#include "redis/call_queue.h"

#include <algorithm>

namespace ratelimit {

LateReply::LateReply(
    redis::Client& client, std::span<RemoteLimit* const> limits, std::span<const LimitCheck> checks,
    const Runs& runs, std::optional<redis::BatchFormat> batched, NodeTime node_time)
    : client_(client),
      runs_(runs),
      batched_(batched),
      refused_(runs.count()),
      granted_(runs.count()),
      leased_(runs.count()),
      counted_(runs.replies()),
      node_time_(node_time),
      began_(client.now())
{
    for (const LimitCheck& check : checks) {
        keys_.append(check.redis_key).append(check.block_key);
    }
    for (const RemoteLimit* limit : limits) {
        keys_ += limit->key;
    }
    std::size_t at = 0;
    for (std::size_t i = 0; i < limits.size(); ++i) {
        Receipt& limit = limits_.emplace_back(limits[i]->receipt());
        limit.now = checks[i].now;
        limit.cost = 0;
        for (std::size_t run = 0; run < runs.count(); ++run) {
            limit.cost = std::max(limit.cost, runs.cost(run, i));
        }
        limit.redis_key = std::string_view(keys_).substr(at, checks[i].redis_key.size());
        at += limit.redis_key.size();
        limit.block_key = std::string_view(keys_).substr(at, checks[i].block_key.size());
        at += limit.block_key.size();
    }
    for (Receipt& limit : limits_) {
        limit.key = std::string_view(keys_).substr(at, limit.key.size());
        at += limit.key.size();
    }
}

void LateReply::await(const std::shared_ptr<LateReply>& late, redis::PendingCall& reply)
{
    for (const Receipt& limit : late->limits_) {
        if (limit.policy.block.count() > 0 && limit.cost > 0) {
            late->unsettled_.emplace_back(late->client_.unsettled(), limit.block_key);
        }
    }
    const auto any = [](std::int64_t requests) { return requests > 0; };
    if (std::any_of(late->refused_.begin(), late->refused_.end(), any) || !late->costs_.empty()) {
        late->await_settlement();
    }
    late->self_ = late;
    reply.goes_to(*late);
}

bool LateReply::on_reply(const redisReply& reply) noexcept
{
    return read_several_reply(reply, runs_.replies(), replies_) && fits(replies_, runs_)
        && answered_late();
}

/// The reply to one request.
bool LateReply::on_part(std::string_view part) noexcept
{
    return read_sequence_replies(part, limits_, replies_) && answered_late();
}

/// True.
bool LateReply::answered_late() noexcept
{
    answered(replies_, {});
    return true;
}

void LateReply::answered(std::span<const KeyReply> replies, const PartList& waiting) noexcept
{
    const std::shared_ptr<LateReply> self = std::move(self_);  // until this function returns
    waiting.each([&](const ShardPart& part) {
        const auto [run, index] = part.position;
        bool passes = true;
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            passes = passes && (limits_[i].shadow || index < replies[runs_.reply_of(run, i)].taken);
        }
        ++(passes ? granted_ : refused_)[run];
        if (!part.lease.replies.empty()) {
            leased_[runs_.first_leased().run] = part.lease.granted() - part.lease.spent;
        }
    });
    for (std::size_t i = 0; i < counted_.size(); ++i) {
        counted_[i] = { replies[i].taken, replies[i].reset };
    }
    for (Receipt& limit : limits_) {
        limit.taken_at = limit.now.value_or(replies.front().server_time);
    }
    answered_ = true;
    refund_refused();
    settle_passed();
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        bool passed = false;
        for (std::size_t run = 0; run < refused_.size(); ++run) {
            const Counted& counted = counted_[runs_.reply_of(run, i)];
            const std::int64_t known = granted_[run] + leased_[run];
            passed = passed || counted.requests - counted.refunded > known;
        }
        if (passed) {
            spare(client_, limits_[i], age());  // it passed earlier than it was counted
        }
    }
    unsettled_.clear();
}

/// The process does not exit before the reply has come: there will be something to settle.
void LateReply::await_settlement()
{
    const auto settles = [](const Receipt& limit) {
        return limit.cost > 0 && !counts_at_one_time(limit.policy.algorithm);
    };
    if (std::any_of(limits_.begin(), limits_.end(), settles)) {
        unsettled_.emplace_back(client_.unsettled(), limits_.front().redis_key, age());
    }
}

void LateReply::refuse(std::size_t run) noexcept
try {
    ++refused_[run];
    if (answered_) {
        refund_refused();
    } else if (self_ != nullptr && unsettled_.empty()) {
        await_settlement();
    }
} catch (const std::exception&) {
    // Out of memory: if the process exits before the reply comes, it stays counted.
}

void LateReply::settle(std::size_t run, std::size_t limit, std::int64_t cost) noexcept
try {
    if (cost != runs_.cost(run, limit)) {
        began_ = client_.now();
        costs_.push_back({ run, limit, cost });
        if (self_ != nullptr) {
            await_settlement();
        }
    }
    if (answered_) {
        settle_passed();
    }
} catch (const std::exception&) {
    // Out of memory: its cost stays counted.
}

void LateReply::ended(redis::Fate) noexcept
{
    const std::shared_ptr<LateReply> self = std::move(self_);  // until this function returns
    for (const Receipt& limit : limits_) {
        spare(client_, limit, age());
    }
    unsettled_.clear();
}

/// The requests of a run that passed stay counted, as far as Redis counted them, and its lease.
void LateReply::refund_refused() noexcept
{
    for (std::size_t run = 0; run < refused_.size(); ++run) {
        const std::int64_t passed = runs_.requests_of(run) - refused_[run] + leased_[run];
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            const Receipt& limit = limits_[i];
            Counted& counted = counted_[runs_.reply_of(run, i)];
            const std::int64_t requests = counted.requests - passed - counted.refunded;
            const std::int64_t cost = requests * runs_.cost(run, i);
            if (cost > 0 && !counts_at_one_time(limit.policy.algorithm)) {
                counted.refunded += requests;
                const Refund refund{ cost, limit.taken_at, counted.reset };
                take_back(client_, limit, refund, node_time_(), age());
            }
        }
    }
}

/// Of the requests of a run, those are settled that Redis may have counted.
void LateReply::settle_passed() noexcept
{
    for (const auto [run, i, cost] : costs_) {
        const Receipt& limit = limits_[i];
        Counted& counted = counted_[runs_.reply_of(run, i)];
        if (counted.settled < counted.requests - counted.refunded) {
            ++counted.settled;
            const Refund taken{ runs_.cost(run, i), limit.taken_at, counted.reset };
            const std::int64_t settled = settled_cost(limit.policy, taken.cost, cost);
            ratelimit::settle(client_, limit, taken, settled, node_time_(), age());
        }
    }
    costs_.clear();
}

}  // namespace ratelimit
