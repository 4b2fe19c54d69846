#include "check/check.h"

#include "check/coalescer.h"
#include "check/settlement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit {

namespace {

auto shard_of(const RemoteLimit& limit) noexcept
{
    return std::tie(limit.coalescer, limit.shard);
}

}  // namespace

/// Reads the record of a key's block (lua/block.lua) by a command of one key. While a slot of a
/// cluster is being moved, Redis refuses commands of several keys, and a check has two if the limit
/// has a block. A foreign value counts as no record.
class Check::BlockRead final : public redis::CommandCall {
public:
    /// `now`: Redis's time since the epoch. The call reads one byte more than a record has, so that
    /// a longer value is not taken for a record.
    BlockRead(Part& part, std::string_view block_key, microseconds now)
        : CommandCall(
            redis::plain_command({ "GETRANGE", block_key, "0", "32" }), std::string(block_key)),
          part_(part),
          now_(now)
    {
        repeatable = true;
    }

    bool on_reply(const redisReply& reply) noexcept override
    {
        if (reply.type != REDIS_REPLY_STRING) {
            return false;
        }
        std::array<double, 4> times{};
        if (reply.len == sizeof(times)) {
            std::memcpy(times.data(), reply.str, sizeof(times));
        }
        const auto [refused, begins, ends, spared] = times;
        const auto at = static_cast<double>(now_.count());
        constexpr double exact = 9'007'199'254'740'992;  // 2^53
        const bool blocked = at < ends && refused < ends && ends < exact
            && (begins <= at || at < refused);  // before the refusal: the clock ran backwards
        const microseconds left{ blocked ? static_cast<std::int64_t>(std::floor(ends - at)) : 0 };
        part_.check.block_read(part_, BlockState{ left, at <= spared && spared < exact });
        return true;
    }
    void ended(redis::Fate) noexcept override { part_.check.block_read(part_, std::nullopt); }

private:
    Part& part_;
    const microseconds now_;
};

Check::Check(std::span<RemoteLimit*> limits, Owner& owner) : owner_(owner), first_(*this)
{
    for (RemoteLimit* limit : limits) {
        limit->shard = limit->coalescer->client().shard_of(limit->redis_key);
    }
    first_.limits = limits;
    const auto is_of_first = [&limits](const RemoteLimit* limit) {
        return shard_of(*limit) == shard_of(*limits.front());
    };
    if (std::ranges::all_of(limits, is_of_first)) {
        return;
    }
    // Not std::stable_sort, which allocates.
    std::sort(limits.begin(), limits.end(), [](const RemoteLimit* left, const RemoteLimit* right) {
        return std::tuple(shard_of(*left), left) < std::tuple(shard_of(*right), right);
    });
    for (Part* part = &first_; part != nullptr; part = part->next.get()) {
        const auto all = part->limits;
        const auto other = std::ranges::find_if(all, [&](const RemoteLimit* limit) {
            return shard_of(*limit) != shard_of(*all.front());
        });
        if (other != all.end()) {
            split(*part, static_cast<std::size_t>(other - all.begin()));
        }
    }
}

/// Moves the limits from index `at` on to a new part, which follows this one in the list.
Check::Part& Check::split(Part& part, std::size_t at)
{
    auto rest = std::make_unique<Part>(*this);
    rest->limits = part.limits.subspan(at);
    rest->since = part.since;
    rest->maybe_executed = part.maybe_executed;
    rest->shared = part.shared = true;
    rest->ignored_before = part.ignored_before;
    rest->next = std::move(part.next);
    part.limits = part.limits.first(at);
    part.next = std::move(rest);
    return *part.next;
}

bool Check::send() noexcept
{
    each_part([this](Part& part) { send(part); });
    return pending_ != 0;
}

void Check::send(Part& part) noexcept
{
    pending_ += part.limits.front()->coalescer->send(part) ? 1 : 0;
}

void Check::part_ended(Part& part) noexcept
{
    --pending_;
    if (part.end == ShardPart::End::slot_migrating) {
        send_one_by_one(part);
    }
    end_if_done();
}

/// No block begins because of units that Redis may have counted without a reply.
void Check::end_if_done() noexcept
{
    if (pending_ != 0) {
        return;
    }
    each_part([](const Part& part) {
        for (const RemoteLimit* limit : part.limits) {
            if (part.maybe_executed && part.end != ShardPart::End::answered) {
                spare(limit->coalescer->client(), *limit);
            }
        }
    });
    owner_.checked();
}

/// Sends each limit of the part as a separate part, with its block read before. They request no
/// lease: each would count tokens that the others may not grant.
void Check::send_one_by_one(Part& part) noexcept
try {
    part.lease_wanted = 0;
    Part* last = &part;
    while (last->limits.size() > 1) {
        last = &split(*last, 1);
    }
    const Part* const behind = last->next.get();
    for (Part* each = &part; each != behind; each = each->next.get()) {
        const RemoteLimit& limit = *each->limits.front();
        if (limit.policy.block.count() > 0 && !limit.block_apart) {
            read_block(*each);
        } else {
            send(*each);
        }
    }
} catch (const std::exception&) {
    // Out of memory: the limits have failed.
}

void Check::read_block(Part& part)
{
    RemoteLimit& limit = *part.limits.front();
    redis::Client& client = limit.coalescer->client();
    const auto now = limit.now ? limit.now : client.server_time(limit.shard);
    part.end = ShardPart::End::failed;
    if (!now) {
        return;
    }
    limit.block_apart = true;
    part.block = std::make_unique<BlockRead>(part, limit.block_key, *now);
    part.block->routing.expires = part.since + client.longest_wait();
    pending_ += client.send(*part.block) ? 1 : 0;
}

void Check::block_read(Part& part, std::optional<BlockState> state) noexcept
{
    --pending_;
    RemoteLimit& limit = *part.limits.front();
    const bool began_since = part.maybe_executed && state
        && state->left + 2 * limit.coalescer->client().longest_wait() > limit.policy.block;
    if (state && state->left.count() > 0 && !began_since) {
        limit.state = blocked(limit.cost, rest_of_block(state->left, limit.policy));
        limit.note_block(state->left, state->spared, false);
        part.end = ShardPart::End::answered;
    } else if (state) {
        limit.spared = state->spared;
        send(part);
    }
    end_if_done();
}

void Check::settle_late(const RemoteLimit& limit, std::int64_t cost) const noexcept
{
    for (const Part* part = &first_; part != nullptr; part = part->next.get()) {
        const auto found = std::ranges::find(part->limits, &limit);
        if (part->late != nullptr && found != part->limits.end()) {
            const auto at = static_cast<std::size_t>(found - part->limits.begin());
            part->late->left().settle(part->position.run, at, cost);
        }
    }
}

bool Check::refund(microseconds now) noexcept
{
    bool refunded = false;
    each_part([&refunded, now](Part& part) {
        if (part.late != nullptr) {
            MessageRef(std::move(part.late))->left().refuse(part.position.run);
        }
        if (!part.shared || !counted(part)) {
            return;
        }
        for (RemoteLimit* limit : part.limits) {
            if (limit->holdings != nullptr) {
                limit->held = {};
                limit->state = limit->without;
            } else if (limit->state.granted && limit->cost > 0) {
                const Refund taken{ limit->cost, limit->taken_at, limit->state.reset };
                take_back(limit->coalescer->client(), *limit, taken, now);
                limit->state = limit->without;
                refunded = true;
            }
        }
    });
    return refunded;
}

}  // namespace ratelimit
