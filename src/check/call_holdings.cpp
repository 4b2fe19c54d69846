#include "check/call_holdings.h"

namespace ratelimit {

namespace {

/// Whether the script counted the request: all its enforced limits granted it.
bool admitted(std::span<const LimitCheck> limits, std::span<const SequenceReply> replies) noexcept
{
    bool all = true;
    for (std::size_t i = 0; i < limits.size(); ++i) {
        all = all && (limits[i].shadow || replies[i].state.granted);
    }
    return all;
}

}  // namespace

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

void CallHoldings::failed(bool executed) noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->failed(executed ? Holding::Executed::check : Holding::Executed::nothing);
    }
}

void CallHoldings::ended(bool timed_out) noexcept
{
    for (const OfLimit& each : holdings_) {
        each.holding->ended(timed_out);
    }
}

bool CallHoldings::answered(
    std::span<const LimitCheck> limits, std::span<const SequenceReply> replies, const Runs& runs,
    const PartList& owner) noexcept
{
    const bool counted = admitted(limits, replies);
    bool all = true;
    for (const auto& [i, holding] : holdings_) {
        const SequenceReply& reply = replies[i];
        const bool taken = counted && reply.state.granted;
        holding->answered({ reply.ignored, taken ? runs.cost(0, i) : 0, reply.place(),
                            limits[i].now.value_or(reply.server_time) });
        owner.each([&, i = i, holding = holding](ShardPart& part) {
            part.limits[i]->ignored = reply.ignored;
            if (taken) {
                part.limits[i]->held = GrantedUnits(*holding, part.limits[i]->cost);
            }
        });
        all = all && (!reply.ignored || limits[i].shadow);
    }
    return all;
}

bool CallHoldings::answered(
    std::span<const LimitCheck> limits, const SeveralReply& reply, const Runs& runs,
    const PartList& owners) noexcept
{
    bool all = true;
    for (const auto& [i, holding] : holdings_) {
        Holding::Answer answer;
        answer.server_time = limits[i].now.value_or(reply.server_time());
        for (std::size_t run = 0; run < runs.replies() / limits.size(); ++run) {
            const std::size_t at = runs.reply_of(run, i);
            const RunReply of_run = reply.answer(at);
            answer.ignored = answer.ignored || reply.ignored(at);
            answer.units += of_run.taken * runs.cost(run, i);
            if (of_run.taken > 0) {
                answer.place = of_run.reset_before.count();
            }
        }
        holding->answered(answer);
        owners.each([&, i = i, holding = holding](ShardPart& part) {
            const auto [run, index] = part.position;
            part.limits[i]->ignored = answer.ignored;
            if (index < reply.answer(runs.reply_of(run, i)).taken) {
                part.limits[i]->held = GrantedUnits(*holding, part.limits[i]->cost);
            }
        });
        all = all && (!answer.ignored || limits[i].shadow);
    }
    return all;
}

}  // namespace ratelimit
