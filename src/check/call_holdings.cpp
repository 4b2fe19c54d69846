#include "check/call_holdings.h"

namespace ratelimit {

void CallHoldings::add(std::size_t limit, Holding& holding)
{
    holdings_.push_back({ limit, &holding });
    holding.enter();
}

void CallHoldings::clear() noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->leave();
    }
    holdings_.clear();
}

bool CallHoldings::wait(Holding::Waiter& waiter) noexcept
{
    for (const OfLimit& each : holdings_) {
        if (!each.holding->ready()) {
            each.holding->wait(waiter);
            return true;
        }
    }
    return false;
}

void CallHoldings::begin() noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->begin(true);
    }
}

void CallHoldings::before_write() noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->before_write();
    }
}

void CallHoldings::failed(bool executed) noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->failed(executed ? Holding::Executed::check : Holding::Executed::nothing);
    }
}

void CallHoldings::ended(bool timed_out) noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->message_ended(timed_out);
    }
}

bool CallHoldings::answered(
    std::span<const LimitCheck> limits, std::span<const KeyReply> replies, const Runs& runs,
    const PartList& owners) noexcept
{
    bool all = true;
    for (const auto& [i, holding] : holdings_) {
        Holding::Answer answer;
        for (std::size_t run = 0; run < runs.count(); ++run) {
            const KeyReply& reply = replies[runs.reply_of(run, i)];
            answer.ignored = answer.ignored || reply.ignored;
            answer.units += reply.taken * runs.cost(run, i);
            answer.place = reply.place >= 0 ? reply.place : answer.place;
            answer.server_time = limits[i].now.value_or(reply.server_time);
        }
        holding->answered(answer);
        owners.each([&, i = i, holding = holding](ShardPart& part) {
            const auto [run, index] = part.position;
            RemoteLimit& limit = *part.limits[i];
            limit.ignored = answer.ignored;
            if (index < replies[runs.reply_of(run, i)].taken) {
                limit.held = GrantedUnits(*holding, limit.cost);
            }
        });
        all = all && (!answer.ignored || limits[i].shadow);
    }
    return all;
}

}  // namespace ratelimit
