#include "check/lease_renewals.h"

#include <exception>
#include <utility>

namespace ratelimit {

void LeaseRenewal::write(redis::CommandBuffer& command) const
{
    command.begin_script(limit_.scripts.several, several_argument_count(limits()));
    write_several_arguments(limits(), run_, command);
}

bool LeaseRenewal::on_reply(const redisReply& reply) noexcept
{
    if (!read_several_reply(reply, limits(), 1, all_.replies_)
        || all_.replies_.front().taken > run_[0]) {
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

void LeaseRenewals::renew(const Receipt& limit, std::int64_t requests, microseconds now) noexcept
{
    const std::size_t hash = calls_.hash_of(limit.redis_key);
    const bool under_way = calls_.find(hash, [&limit](const LeaseRenewal& call) {
        return call.redis_key_ == limit.redis_key;
    }) != nullptr;
    LeaseRenewal* call = nullptr;
    try {
        if (!under_way && calls_.size() < most) {
            call = &calls_.add(hash, *this);
            call->redis_key_ = limit.redis_key;
            call->key_ = limit.key;
            call->limit_ = limit;
            call->limit_.redis_key = call->redis_key_;
            call->limit_.key = call->key_;
            call->run_ = { requests, limit.cost };
            call->sent_ = now;
            call->routing = { .shard = client_.shard_of(call->redis_key_) };
            if (client_.send(*call)) {
                return;
            }
        }
    } catch (const std::exception&) {
        // Out of memory: as without a connection.
    }
    if (call != nullptr) {
        calls_.remove(*call);
    }
    limit.owner->lease_renewed(limit, {}, now);
}

}  // namespace ratelimit
