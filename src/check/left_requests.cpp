#include "check/left_requests.h"

#include "check/settlement.h"

#include <algorithm>

namespace ratelimit {

void LeftRequests::clear() noexcept
{
    reply_ = Reply::none;
    settles_ = owes_ = false;
    receipts_.clear();
    costs_.clear();
    unsettled_.clear();
}

void LeftRequests::add(
    redis::Client& client, NodeTime node_time, const ShardPart& part,
    std::span<const LimitCheck> limits)
{
    if (any() || part.limits.front()->scripts.only_look()) {
        return;
    }
    client_ = &client;
    node_time_ = node_time;
    began_ = client.now();
    passed_.clear();
    for (std::size_t run = 0; run < runs_.count(); ++run) {
        passed_.push_back({ runs_.requests_of(run), 0 });
    }
    changed_.assign(runs_.replies(), {});
    keys_.clear();
    for (const RemoteLimit* limit : part.limits) {
        keys_ += limit->key;
    }
    receipts_.reserve(limits.size());  // nothing below throws
    std::string_view keys = keys_;
    for (std::size_t i = 0; i < limits.size(); ++i) {
        Receipt& receipt = receipts_.emplace_back(*part.limits[i]);
        receipt.redis_key = limits[i].redis_key;
        receipt.block_key = limits[i].block_key;
        receipt.now = limits[i].now;
        receipt.key = keys.substr(0, receipt.key.size());
        keys.remove_prefix(receipt.key.size());
        for (std::size_t run = 0; run < runs_.count(); ++run) {
            receipt.cost = std::max(receipt.cost, runs_.cost(run, i));
        }
        settles_ = settles_ || (receipt.cost > 0 && !counts_at_one_time(receipt.policy.algorithm));
    }
}

void LeftRequests::await_reply()
{
    reply_ = Reply::late;
    for (const Receipt& receipt : receipts_) {
        if (receipt.policy.block.count() > 0 && receipt.cost > 0) {
            unsettled_.emplace_back(client_->unsettled(), receipt.block_key);
        }
    }
    update();
}

void LeftRequests::refuse(std::size_t run) noexcept
try {
    --passed_[run].all;
    owes_ = settles_;
    update();
} catch (const std::exception&) {
    // Out of memory: if the process exits before the reply comes, it stays counted.
}

void LeftRequests::settle(std::size_t run, std::size_t limit, std::int64_t cost) noexcept
try {
    if (cost != runs_.cost(run, limit)) {
        began_ = client_->now();
        costs_.push_back({ run, limit, cost });
        owes_ = settles_;
        update();
    }
} catch (const std::exception&) {
    // Out of memory: its cost stays counted.
}

void LeftRequests::update()
{
    if (reply_ == Reply::answered) {
        refund_refused();
        settle_passed();
    } else if (reply_ == Reply::late && owes_) {
        // The process does not exit before the reply has come.
        unsettled_.emplace_back(client_->unsettled(), receipts_.front().redis_key, age());
    }
}

void LeftRequests::answered(const PartList& waiting, bool again) noexcept
{
    if (!any()) {
        return;
    }
    reply_ = Reply::answered;
    waiting.each([this](const ShardPart& part) {
        passed_[part.position.run].by_reply += counted(part) ? 1 : 0;
        passed_[part.position.run].all -= counted(part) ? 0 : 1;
        const std::int64_t tokens = part.lease.granted() - part.lease.spent;
        passed_.back().by_reply += tokens;  // of the leased run
        passed_.back().all += tokens;
    });
    for (Receipt& receipt : receipts_) {
        receipt.taken_at = receipt.now.value_or(replies_.front().server_time);
    }
    refund_refused();
    settle_passed();
    // No block begins because of requests that passed before they were counted.
    // A message that was sent again may have been executed longer ago than it says.
    each_count([=, this](auto run, auto limit, const KeyReply& counted, const Changed& changed) {
        if (again || counted.taken - changed.refunded > passed_[run].by_reply) {
            spare(*client_, receipts_[limit], age());
        }
    });
    unsettled_.clear();
}

void LeftRequests::lost(bool maybe_executed) noexcept
{
    reply_ = Reply::none;
    for (const Receipt& receipt : receipts_) {
        if (maybe_executed) {
            spare(*client_, receipt, age());
        }
    }
    unsettled_.clear();
}

/// Calls `visit` with each run and limit, the units that Redis counted, and those changed since.
template <class Visit>
void LeftRequests::each_count(Visit&& visit)
{
    for (std::size_t limit = 0; limit < receipts_.size(); ++limit) {
        for (std::size_t run = 0; run < passed_.size(); ++run) {
            const std::size_t at = runs_.reply_of(run, limit);
            visit(run, limit, replies_[at], changed_[at]);
        }
    }
}

/// The requests of a run that passed stay counted, as far as Redis counted them.
void LeftRequests::refund_refused() noexcept
{
    each_count([this](auto run, auto limit, const KeyReply& counted, Changed& changed) {
        const Receipt& receipt = receipts_[limit];
        const std::int64_t requests = counted.taken - passed_[run].all - changed.refunded;
        const std::int64_t cost = requests * runs_.cost(run, limit);
        if (cost > 0 && !counts_at_one_time(receipt.policy.algorithm)) {
            changed.refunded += requests;
            const Refund refund{ cost, receipt.taken_at, counted.reset };
            take_back(*client_, receipt, refund, node_time_(), age());
        }
    });
}

/// Settles the requests of each run that Redis may have counted.
void LeftRequests::settle_passed() noexcept
{
    for (const auto [run, i, cost] : costs_) {
        const KeyReply& counted = replies_[runs_.reply_of(run, i)];
        Changed& changed = changed_[runs_.reply_of(run, i)];
        if (changed.settled < counted.taken - changed.refunded) {
            ++changed.settled;
            const Refund taken{ runs_.cost(run, i), receipts_[i].taken_at, counted.reset };
            const std::int64_t settled = settled_cost(receipts_[i].policy, taken.cost, cost);
            ratelimit::settle(*client_, receipts_[i], taken, settled, node_time_(), age());
        }
    }
    costs_.clear();
}

}  // namespace ratelimit
