// Units of concurrency limits that Redis counted for requests that do not wait for the reply any
// longer, because it came late or they were destroyed: no request would release them.

#include "check/coalesced_call.h"
#include "check/settlement.h"

namespace ratelimit {

/// Releases what was taken of concurrency limits for requests that do not wait for the reply any
/// longer: no other call would.
void CoalescedCall::release_unowned(const SeveralReply& reply) noexcept
{
    std::size_t owners = 0;
    in_flight_.each([&owners](const ShardPart&) { ++owners; });
    if (!held_ || owners == runs_.requests()) {
        return;
    }
    for (std::size_t run = 0; run < runs_.replies() / limits_.size(); ++run) {
        for (std::size_t i = 0; i < limits_.size(); ++i) {
            const RunReply answer = reply.answer(runs_.reply_of(run, i));
            std::int64_t unowned = answer.taken;
            in_flight_.each([&, run = run](const ShardPart& part) {
                const auto [own_run, index] = part.position;
                unowned -= own_run == run && index < answer.taken ? 1 : 0;
            });
            release_units(i, { unowned * runs_.cost(run, i), reply.server_time(), answer.reset });
        }
    }
}

/// The same for the reply to one request. False: it is malformed.
bool CoalescedCall::release_unowned(std::string_view part) noexcept
{
    const std::size_t bytes = part.size() / limits_.size();
    SequenceReply reply;
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        if (!read_sequence_reply(part.substr(i * bytes, bytes), reply)) {
            return false;
        }
        if (!limits_[i].shadow && !reply.state.granted) {
            return true;  // nothing was taken
        }
    }
    for (std::size_t i = 0; i < limits_.size(); ++i) {
        read_sequence_reply(part.substr(i * bytes, bytes), reply);
        const std::int64_t units = reply.state.granted ? runs_.cost(0, i) : 0;
        release_units(i, { units, reply.server_time, reply.state.reset });
    }
    return true;
}

void CoalescedCall::release_units(std::size_t limit, const Refund& taken) noexcept
{
    const LimitCheck& check = limits_[limit];
    if (check.policy.algorithm != Algorithm::concurrency || taken.cost == 0) {
        return;
    }
    RemoteLimit remote;
    static_cast<LimitCheck&>(remote) = check;
    remote.scripts = *held_;
    remote.shard = *routing.shard;
    const microseconds at = check.now.value_or(taken.taken_at);
    refund(client_, remote, { taken.cost, at, taken.reset }, at);
}

/// Gets the reply to a call that has timed out, and releases what that took of concurrency limits.
class CoalescedCall::Late final : public CoalescedCall {
public:
    explicit Late(const CoalescedCall& call) : CoalescedCall(call.client_) { copy_call(call); }

private:
    void on_unused() noexcept override { delete this; }
};

void CoalescedCall::copy_call(const CoalescedCall& other)
{
    routing.shard = other.routing.shard;
    repeatable = false;
    keys_ = other.keys_;
    limits_ = other.limits_;
    point_to_keys();
    several_ = other.several_;
    sequence_ = other.sequence_;
    refundable_ = other.refundable_;
    held_ = other.held_;
    runs_ = other.runs_;
}

redis::Call* CoalescedCall::late_release()
{
    return new Late(*this);
}

}  // namespace ratelimit
