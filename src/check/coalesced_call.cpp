#include "check/coalesced_call.h"

#include "check/settlement.h"

#include <algorithm>

namespace ratelimit {

namespace {

auto costs_of(const ShardPart& part) noexcept
{
    return [&part](std::size_t limit) { return part.limits[limit]->cost; };
}

void notify(PartList& ended) noexcept
{
    while (!ended.empty()) {
        ended.pop_front().ended();
    }
}

}  // namespace

bool CoalescedCall::begin(ShardPart& first) noexcept
try {
    copy_limits(first);
    if (!holdings_.ready() && client_.refuses(*routing.shard)) {
        return false;
    }
    waiting_.push_back(first);
    if (!holdings_.wait(*this) && !send_waiting(false)) {
        in_flight_.pop_front();
        return false;
    }
    return true;
} catch (const std::exception&) {
    return false;
}

void CoalescedCall::copy_limits(const ShardPart& part)
{
    routing.shard = part.limits.front()->shard;
    several_ = part.limits.front()->scripts.several;
    sequence_ = sequence_of(part.limits);
    keys_.clear();
    limits_.clear();
    holdings_.clear();
    numbers_ = 0;
    for (const RemoteLimit* limit : part.limits) {
        keys_.append(limit->redis_key).append(limit->block_key);
        LimitCheck& copy = limits_.emplace_back(*limit);
        numbers_ += numbers_of(limit->policy.algorithm);
        copy.states = nullptr;
        if (limit->holdings != nullptr) {
            Holding& holding = limit->holdings->of(*limit, limit->shard, limit->scripts.statement);
            copy.states = &holding.source();
            holdings_.add(limits_.size() - 1, holding);
        }
    }
    point_to_keys();
}

void CoalescedCall::point_to_keys() noexcept
{
    const char* key = keys_.data();
    for (LimitCheck& limit : limits_) {
        limit.redis_key = { key, limit.redis_key.size() };
        key += limit.redis_key.size();
        limit.block_key = { key, limit.block_key.size() };
        key += limit.block_key.size();
    }
}

bool CoalescedCall::matches(const ShardPart& part) const noexcept
{
    return sequence_ == sequence_of(part.limits) && several_ == part.limits.front()->scripts.several
        && std::equal(
               limits_.begin(), limits_.end(), part.limits.begin(), part.limits.end(),
               [](const LimitCheck& limit, const RemoteLimit* other) {
                   return limit.redis_key == other->redis_key && alike(limit, *other)
                       && (limit.states != nullptr) == (other->holdings != nullptr);
               });
}

/// Moves as many waiting requests as fit in one call, at least one, to in_flight_. The call has the
/// time of the last one, and requests the lease that the last one wants.
void CoalescedCall::arrange_waiting()
{
    routing.expires = waiting_.front().expires;
    sent_before = waiting_.front().sent_before;
    repeatable = holdings_.empty() && !sent_before;
    runs_.begin(limits_.size());
    while (!waiting_.empty() && waiting_.front().sent_before == sent_before
           && runs_.has_room_for(costs_of(waiting_.front()))) {
        ShardPart& part = waiting_.front();
        in_flight_.push_back(part);
        part.late.reset();
        part.unknown = part.sent_before;
        part.position = runs_.add(costs_of(part));
        routing.expires = std::min(routing.expires, part.expires);
    }
    const ShardPart& last = in_flight_.back();
    runs_.lease(last.lease_wanted);
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        limits_[i].now = last.limits[i]->now;
    }
}

/// Sends the next call. After a timeout, requests keep their own deadlines instead of starting
/// fresh ones. False: it was not sent, and the caller must fail the requests of in_flight_.
bool CoalescedCall::send_waiting(bool after_timeout) noexcept
try {
    arrange_waiting();
    if (after_timeout) {
        routing.expires = own_deadline(in_flight_.back());
    }
    holdings_.begin();
    if (!client_.try_send(*this)) {
        holdings_.failed(false);
        holdings_.ended(false);
        return false;
    }
    if (after_timeout) {
        watch_own_deadlines();
    }
    return true;
} catch (const std::exception&) {
    return false;
}

/// Whether the script of its limits decides it: it is one request, and is sent for the first time.
bool CoalescedCall::in_sequence() const noexcept
{
    return sequence_ && runs_.single() && !repeated();
}

void CoalescedCall::write_keys(redis::ScriptArguments& arguments) const
{
    write_check_keys(limits_, arguments);
}

void CoalescedCall::write_numbers(redis::ScriptArguments& arguments) const
{
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        write_sequence_numbers(limits_[i], runs_.cost(i), arguments);
    }
}

void CoalescedCall::write(redis::CommandBuffer& command) const
{
    const auto write_runs = [&](std::span<const std::int64_t> runs) {
        command.begin_script(several_, several_argument_count(limits_, runs));
        write_several_arguments(limits_, runs, command);
    };
    if (repeated()) {
        write_runs(runs_.numbers_again());
    } else {
        write_runs(runs_.numbers());
    }
}

bool CoalescedCall::on_reply(const redisReply& reply) noexcept
{
    return read_several_reply(reply, runs_.replies(), replies_) && fits(replies_, runs_)
        && answered();
}

/// The reply to one request.
bool CoalescedCall::on_part(std::string_view part) noexcept
{
    return read_sequence_replies(part, limits_, replies_) && answered();
}

/// True.
bool CoalescedCall::answered() noexcept
{
    in_flight_.each([&](ShardPart& part) { answer(part); });
    pass_on_lease();
    if (late_ != nullptr) {
        late_->answered(replies_, in_flight_);
    }
    if (!holdings_.answered(limits_, replies_, runs_, in_flight_)) {
        try_again(false);
    }
    end(false);
    return true;
}

void CoalescedCall::answer(ShardPart& part) noexcept
{
    const auto [run, index] = part.position;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        RemoteLimit& limit = *part.limits[i];
        const KeyReply& reply = replies_[runs_.reply_of(run, i)];
        limit.state = state_in_run(reply, limit.policy, limit.cost, index);
        if (index < reply.taken) {
            limit.without = state_without(reply, limit.policy, limit.cost, index);
        }
        limit.now = limits_[i].now;
        limit.taken_at = limit.now.value_or(reply.server_time);
        limit.note_block(reply.blocked, reply.spared, repeated());
        // The script had no key of the block; or the block may have begun because of what the call
        // counted before: it did not stand yet when the call was sent first.
        const bool began_since = reply.blocked.count() > 0
            && reply.blocked + 2 * client_.longest_wait() > limit.policy.block;
        if (repeated() && (index < reply.taken ? limit.block_apart : began_since)) {
            spare(client_, limit.receipt());
        }
    }
    part.end = ShardPart::End::answered;
}

/// Gives the lease to the last request that still exists, if its costs are those of the leased run.
void CoalescedCall::pass_on_lease() noexcept
try {
    if (runs_.leased() == 0 || in_flight_.empty()
        || !runs_.continues(costs_of(in_flight_.back()))) {
        return;
    }
    const auto [run, index] = runs_.first_leased();
    Lease lease;
    lease.spent = index;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        lease.replies.push_back(replies_[runs_.reply_of(run, i)]);
    }
    if (lease.granted() > index) {
        in_flight_.back().lease = std::move(lease);
        // A lease for a waiting request would come on top of this one.
        waiting_.each([](ShardPart& part) { part.lease_wanted = 0; });
    }
} catch (const std::exception&) {
    // Out of memory: the lease lapses.
}

/// The request fails, but its call goes on: it is refunded if it is refused for that.
void CoalescedCall::let_go(ShardPart& part)
{
    if (late_ == nullptr) {
        const auto batched = in_sequence() ? std::optional{ format() } : std::nullopt;
        late_ =
            std::make_shared<LateReply>(client_, part.limits, limits_, runs_, batched, node_time_);
    }
    part.late = late_;
}

void CoalescedCall::overdue(redis::PendingCall& reply) noexcept
{
    try {
        in_flight_.each([this](ShardPart& part) { let_go(part); });
        if (late_ != nullptr) {
            LateReply::await(late_, reply);
        }
    } catch (const std::exception&) {
        // Out of memory: what was counted stays counted.
    }
    ended(redis::Fate::overdue);
}

void CoalescedCall::ended(redis::Fate fate) noexcept
{
    using redis::Fate;
    const bool timed_out = fate == Fate::overdue || fate == Fate::expired;
    holdings_.failed(maybe_executed(fate));
    const bool migrating = fate == Fate::one_by_one && limits_.size() + count_blocks(limits_) > 1;
    set_end(in_flight_, migrating ? ShardPart::End::slot_migrating : ShardPart::End::failed);
    if (repeated() || fate == Fate::failed || fate == Fate::lost) {
        note_unknown(in_flight_, repeated());
        if (late_ != nullptr && !timed_out) {
            late_->ended(fate);
        }
    }
    if (fate == Fate::lost && !repeatable) {
        try_again(true);
    }
    end(timed_out);
}

/// The arrival of a request plus `timeout`: its deadline without the time to connect.
redis::milliseconds CoalescedCall::own_deadline(const ShardPart& part) const noexcept
{
    return part.expires - client_.longest_wait() + client_.usual_wait();
}
bool CoalescedCall::overdue(const ShardPart& part) const noexcept
{
    return own_deadline(part) <= client_.now();
}

/// Starts the timer for the first request in flight to become overdue.
void CoalescedCall::watch_own_deadlines() noexcept
try {
    if (own_deadlines_ == nullptr) {
        own_deadlines_ = client_.make_timer([this] { fail_overdue(); });
    }
    const auto left = own_deadline(in_flight_.front()) - client_.now();
    own_deadlines_->start(std::max(left, redis::milliseconds{ 1 }));
} catch (const std::exception&) {
    // Out of memory: the requests fail when the call does.
}

void CoalescedCall::fail_overdue() noexcept
try {
    PartList ended;
    while (!in_flight_.empty() && overdue(in_flight_.front())) {
        let_go(in_flight_.front());
        in_flight_.front().end = ShardPart::End::failed;
        ended.push_back(in_flight_.front());
    }
    if (!in_flight_.empty()) {
        watch_own_deadlines();
    }
    notify(ended);
} catch (const std::exception&) {
    // Out of memory: the requests fail when the call does.
}

/// Includes waiting requests that are overdue: they fail with the call if it times out.
unsigned CoalescedCall::request_count() const noexcept
{
    unsigned requests = runs_.requests();
    waiting_.each([&](const ShardPart& part) { requests += overdue(part) ? 1 : 0; });
    return requests;
}

/// Sends the next call before it notifies the requests of this one, which may take time and send
/// other checks.
void CoalescedCall::end(bool timed_out) noexcept
{
    PartList ended;
    ended.take_all(in_flight_);
    late_.reset();
    if (own_deadlines_ != nullptr) {
        own_deadlines_->stop();
    }
    holdings_.ended(timed_out);
    send_next(timed_out, ended);
    notify(ended);
}

/// The requests of a call that took nothing, or whose connection was lost, are the first of the
/// next one, once for each of these reasons. `executed`: Redis may have counted them nevertheless.
void CoalescedCall::try_again(bool executed) noexcept
{
    PartList again;
    in_flight_.each([&](ShardPart& part) {
        if (std::exchange(executed ? part.sent_before : part.ignored_before, true)) {
            part.end = ShardPart::End::failed;
            return;
        }
        part.end = ShardPart::End::pending;
        part.expires = std::max(part.expires, client_.now() + redis::milliseconds{ 1 });
        again.push_back(part);
    });
    again.take_all(waiting_);
    waiting_.take_all(again);
}

/// Sends a call of the requests that wait, or waits until it can be sent. After a timeout, requests
/// that are overdue fail instead of waiting for a second timeout.
void CoalescedCall::send_next(bool timed_out, PartList& ended) noexcept
{
    while (timed_out && !waiting_.empty() && overdue(waiting_.front())) {
        waiting_.front().end = ShardPart::End::failed;
        ended.push_back(waiting_.front());
    }
    bool sent = !waiting_.empty() && holdings_.wait(*this);
    while (!sent && !waiting_.empty()) {
        sent = send_waiting(timed_out);
        if (!sent) {
            set_end(in_flight_, ShardPart::End::failed);
            ended.take_all(in_flight_);
        }
    }
    if (!sent) {
        on_unused();
    }
}

void CoalescedCall::proceed(bool timed_out) noexcept
{
    PartList ended;
    send_next(timed_out, ended);
    notify(ended);
}

}  // namespace ratelimit
