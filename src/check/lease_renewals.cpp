#include "check/lease_renewals.h"

#include <exception>
#include <span>
#include <utility>

namespace ratelimit {

LeaseRenewals::LeaseRenewals(redis::Client& client) noexcept : client_(client) {}

void LeaseRenewal::write(redis::CommandBuffer& command) const
{
    const std::span limits(&check_, 1);
    command.begin_script(script_, several_argument_count(limits, runs_.numbers()));
    write_several_arguments(limits, runs_.numbers(), command);
}

bool LeaseRenewal::on_reply(const redisReply& reply) noexcept
{
    const std::span limits(&check_, 1);
    if (!read_several_reply(reply, limits, runs_.count(), all_.replies_)
        || !fits(all_.replies_, runs_)) {
        return false;
    }
    tell_owner(all_.replies_.front());
    all_.calls_.remove(*this);
    return true;
}

void LeaseRenewal::ended(redis::Fate) noexcept
{
    tell_owner({});
    all_.calls_.remove(*this);
}

void LeaseRenewals::renew(
    const LimitCheck& check, redis::ScriptId script, const LeasedKey& key, std::int64_t requests,
    microseconds now) noexcept
{
    const std::size_t hash = calls_.hash_of(check.redis_key);
    const bool under_way = calls_.find(hash, [&check](const LeaseRenewal& call) {
        return call.redis_key_ == check.redis_key;
    }) != nullptr;
    if (under_way || calls_.size() >= most || !send(hash, check, script, key, requests, now)) {
        key.owner.lease_renewed(key.key, key.policy_hash, check, {}, now);
    }
}

bool LeaseRenewals::send(
    std::size_t hash, const LimitCheck& check, redis::ScriptId script, const LeasedKey& key,
    std::int64_t requests, microseconds now) noexcept
{
    LeaseRenewal* call = nullptr;
    try {
        call = &calls_.add(hash, *this);
        call->redis_key_ = check.redis_key;
        call->key_ = key.key;
        call->check_ = check;
        call->check_.redis_key = call->redis_key_;
        call->script_ = script;
        call->runs_.begin(1);
        call->runs_.add([&check](std::size_t) { return check.cost; });
        call->runs_.lease(requests - 1);
        call->policy_hash_ = key.policy_hash;
        call->owner_ = &key.owner;
        call->sent_ = now;
        call->routing = {};
        call->routing.shard = client_.shard_of(call->redis_key_);
        if (client_.send(*call)) {
            return true;
        }
    } catch (const std::exception&) {
        // Out of memory: as without a connection.
    }
    if (call != nullptr) {
        calls_.remove(*call);
    }
    return false;
}

}  // namespace ratelimit
