#include "check/check_message.h"

#include "check/settlement.h"
#include "redis/call_queue.h"

#include <algorithm>
#include <utility>

namespace ratelimit {

namespace {

auto costs_of(const ShardPart& part) noexcept
{
    return [&part](std::size_t limit) { return part.limits[limit]->cost; };
}

}  // namespace

MessageRef CheckMessage::reference() noexcept
{
    ++references_;
    return MessageRef(this);
}

void LetGo::operator()(CheckMessage* message) const noexcept
{
    if (--message->references_ == 0 && !message->pending()) {
        message->leave_holdings();
        message->left_.clear();
        ReusePool<CheckMessage>::shared().give_back(*message);
    }
}

MessageRef CheckMessage::make(
    redis::Client& client, NodeTime node_time, Queue& queue, const ShardPart& first)
{
    MessageRef made = ReusePool<CheckMessage>::shared().take().reference();
    made->client_ = &client;
    made->node_time_ = node_time;
    made->queue_ = &queue;
    made->copy_limits(first);
    return made;
}

void CheckMessage::drop() noexcept
{
    abandon();
    holdings_.clear();
    requests_.each([](ShardPart& part) { part.unlink(); });
}

void CheckMessage::copy_limits(const ShardPart& part)
{
    routing = { .shard = part.limits.front()->shard };
    several_ = part.limits.front()->scripts.several;
    sequence_ = sequence_of(part.limits);
    runs_.begin(part.limits.size());
    keys_.clear();
    limits_.clear();
    for (const RemoteLimit* limit : part.limits) {
        keys_.append(limit->redis_key).append(limit->block_key);
        LimitCheck& copy = limits_.emplace_back(*limit);
        copy.states = nullptr;
        if (limit->holdings != nullptr) {
            Holding& holding =
                limit->holdings->of(limit->redis_key, limit->shard, limit->scripts.statement);
            copy.states = &holding.statement();
            holdings_.push_back({ limits_.size() - 1, &holding });
            holding.enter();
        }
    }
    const char* key = keys_.data();
    for (LimitCheck& limit : limits_) {
        limit.redis_key = { key, limit.redis_key.size() };
        limit.block_key = { key + limit.redis_key.size(), limit.block_key.size() };
        key += limit.redis_key.size() + limit.block_key.size();
    }
}

bool CheckMessage::matches(const ShardPart& part) const noexcept
{
    return std::equal(
        limits_.begin(), limits_.end(), part.limits.begin(), part.limits.end(),
        [](const LimitCheck& limit, const RemoteLimit* other) {
            return limit.redis_key == other->redis_key && limit.policy == other->policy
                && limit.shadow == other->shadow && limit.block_apart == other->block_apart
                && limit.now.has_value() == other->now.has_value()
                && (limit.states != nullptr) == (other->holdings != nullptr);
        });
}

void CheckMessage::take(PartList& waiting)
{
    routing.expires = waiting.front().since + client_->longest_wait();
    sent_before = waiting.front().maybe_executed;
    repeatable = holdings_.empty() && !sent_before;
    while (!waiting.empty() && waiting.front().maybe_executed == sent_before
           && runs_.has_room_for(costs_of(waiting.front()))) {
        ShardPart& part = waiting.front();
        requests_.push_back(part);
        part.late = {};
        part.position = runs_.add(costs_of(part));
        routing.expires = std::min(routing.expires, part.since + client_->longest_wait());
    }
    const ShardPart& last = requests_.back();
    runs_.lease(last.lease_wanted);
    for (std::size_t i = 0; LimitCheck & limit : limits_) {
        limit.now = last.limits[i++]->now;
    }
}

Holding* CheckMessage::busy_holding(const Holding::Waiter& queue) const noexcept
{
    const auto busy = std::ranges::find_if(
        holdings_, [&queue](const OfLimit& each) { return !each.holding->ready(queue); });
    return busy == holdings_.end() ? nullptr : busy->holding;
}

void CheckMessage::leave_holdings() noexcept
{
    each_holding(&Holding::leave);
    holdings_.clear();
}

bool CheckMessage::send() noexcept
{
    each_holding([](Holding& holding) { holding.begin(true); });
    const bool sent = client_->send(*this);
    if (!sent) {
        each_holding([](Holding& holding) { holding.failed(Holding::Executed::nothing); });
        each_holding(&Holding::message_ended);
    }
    return sent;
}

unsigned CheckMessage::request_count() const noexcept
{
    return runs_.requests() + (queue_ == nullptr ? 0 : queue_->overdue());
}

void CheckMessage::write_keys(redis::ScriptArguments& arguments) const
{
    write_check_keys(limits_, arguments);
}

void CheckMessage::write_numbers(redis::ScriptArguments& arguments) const
{
    for (std::size_t i = 0; const LimitCheck& limit : limits_) {
        write_sequence_numbers(limit, runs_.cost(i++), arguments);
    }
}

void CheckMessage::write_own_numbers(redis::ScriptArguments& arguments) const
{
    for (const LimitCheck& limit : limits_) {
        write_holder(limit, arguments);
    }
}

void CheckMessage::write(redis::CommandBuffer& command) const
{
    const auto again =
        repeated() ? runs_.numbers_again(2 * client_->longest_wait()) : std::vector<std::int64_t>();
    const auto numbers = repeated() ? std::span<const std::int64_t>(again) : runs_.numbers();
    command.begin_script(several_, several_argument_count(limits_));
    write_several_arguments(limits_, numbers, command);
}

bool CheckMessage::on_reply(const redisReply& reply) noexcept
{
    return read_several_reply(reply, limits_, runs_.count(), replies_) && fits(replies_, runs_)
        && answered();
}

/// The reply to one request.
bool CheckMessage::on_part(redis::ReplyPart part) noexcept
{
    const auto cost = [this](std::size_t limit) { return runs_.cost(limit); };
    return read_sequence_replies(part, limits_, cost, replies_) && answered();
}

/// True.
bool CheckMessage::answered() noexcept
{
    const MessageRef self = reference();
    routing.exchange.read(replies_.front().server_time, !holdings_.empty());
    const bool behind = target_is_behind();
    requests_.each([&](ShardPart& part) { answer(part, behind); });
    pass_on_lease();
    left_.answered(requests_, repeated());
    PartList again;
    if (!take_held_units()) {
        take_again(again, &ShardPart::ignored_before);
    }
    end(false, again);
    return true;
}

/// Whether the slot is being moved to the server that answered, and its clock is behind that of the
/// slot's owner.
bool CheckMessage::target_is_behind() const noexcept
{
    const microseconds shown = replies_.front().server_time;
    return routing.asking && shown.count() > 0
        && client_->server_time(*routing.shard, routing.exchange.sent) > shown + ClockSteps::drift;
}

void CheckMessage::answer(ShardPart& part, bool behind) noexcept
{
    const auto [run, index] = part.position;
    const bool again = repeated();
    for (std::size_t i = 0; i < part.limits.size(); ++i) {
        RemoteLimit& limit = *part.limits[i];
        const KeyReply& reply = replies_[runs_.reply_of(run, i)];
        limit.state = state_in_run(reply, limit.policy, limit.cost, index);
        if (part.shared && index < reply.taken) {
            limit.without = state_without(reply, limit.policy, limit.cost, index);
        }
        limit.now = limits_[i].now;
        limit.taken_at = limit.now.value_or(reply.server_time);
        limit.note_block(reply.blocked, reply.spared, again || behind);
        if (again && limit.block_apart) {  // the script had no key of the block
            spare(*client_, limit);
        }
    }
    part.end = ShardPart::End::answered;
}

/// The requests that still exist hold what was taken for them. False: a statement was ignored, and
/// nothing was taken.
bool CheckMessage::take_held_units() noexcept
{
    bool all = true;
    for (const auto& [i, holding] : holdings_) {
        Holding::Answer answer;
        for (std::size_t run = 0; run < runs_.count(); ++run) {
            const KeyReply& reply = replies_[runs_.reply_of(run, i)];
            answer.ignored = answer.ignored || reply.ignored;
            answer.units += reply.taken * runs_.cost(run, i);
            answer.place = reply.place >= 0 ? reply.place : answer.place;
            answer.ahead = reply.server_time - routing.exchange.answered;
        }
        holding->answered(answer);
        requests_.each([&, i = i, holding = holding](ShardPart& part) {
            RemoteLimit& limit = *part.limits[i];
            limit.ignored = answer.ignored;
            if (part.position.index < replies_[runs_.reply_of(part.position.run, i)].taken) {
                limit.held = GrantedUnits(*holding, limit.cost);
            }
        });
        all = all && (!answer.ignored || limits_[i].shadow);
    }
    return all;
}

/// Gives the lease to the last request that still exists, if its costs are those of the leased run.
void CheckMessage::pass_on_lease() noexcept
try {
    if (runs_.leased() == 0 || requests_.empty() || !runs_.continues(costs_of(requests_.back()))) {
        return;
    }
    const auto [run, index] = runs_.first_leased();
    Lease lease{ {}, index };
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        lease.replies.push_back(replies_[runs_.reply_of(run, i)]);
    }
    if (lease.granted() > index) {
        requests_.back().lease = std::move(lease);
    }
} catch (const std::exception&) {
    // Out of memory: the lease lapses.
}

void CheckMessage::leave(ShardPart& request)
{
    left_.add(*client_, node_time_, request, limits_);
    request.late = reference();
    request.end = ShardPart::End::failed;
}

void CheckMessage::overdue(redis::PendingCall& reply) noexcept
{
    repeatable = false;
    try {
        requests_.each([this](ShardPart& request) { leave(request); });
        if (left_.any()) {
            left_.await_reply();
            reply.goes_to(*this);
        }
    } catch (const std::exception&) {
        // Out of memory: what was counted stays counted.
    }
    ended(redis::Fate::overdue);
}

void CheckMessage::ended(redis::Fate fate) noexcept
{
    using redis::Fate;
    const MessageRef self = reference();
    const bool executed = repeated() || (maybe_executed(fate) && !pending());
    each_holding([fate](Holding& holding) {
        holding.failed(
            maybe_executed(fate) ? Holding::Executed::check : Holding::Executed::nothing);
    });
    PartList again;
    if (fate == Fate::lost && !repeatable) {
        take_again(again, &ShardPart::maybe_executed);
    }
    const bool migrating = fate == Fate::one_by_one && limits_.size() + count_blocks(limits_) > 1;
    requests_.each([=](ShardPart& part) {
        part.end = migrating ? ShardPart::End::slot_migrating : ShardPart::End::failed;
        part.maybe_executed = part.maybe_executed || executed;
    });
    if (!pending()) {
        left_.lost(executed);
    }
    end(fate == Fate::overdue || fate == Fate::expired, again);
}

/// Takes the requests that are sent again: once for each of these reasons. The others fail.
void CheckMessage::take_again(PartList& again, bool ShardPart::*reason) noexcept
{
    requests_.each([&](ShardPart& part) {
        if (std::exchange(part.*reason, true)) {
            part.end = ShardPart::End::failed;
            return;
        }
        part.end = ShardPart::End::pending;
        const auto last_moment = client_->now() + redis::milliseconds{ 1 };
        part.since = std::max(part.since, last_moment - client_->longest_wait());
        again.push_back(part);
    });
}

/// The next message is sent before the requests of this one are notified.
void CheckMessage::end(bool timed_out, PartList& again) noexcept
{
    PartList ended;
    ended.take_all(requests_);
    each_holding(&Holding::message_ended);
    leave_holdings();
    if (queue_ != nullptr) {
        std::exchange(queue_, nullptr)->message_ended(timed_out, again, ended);
    }
    notify(ended);
}

}  // namespace ratelimit
