#pragma once

#include "check/coalescer.h"
#include "conf/conf.h"
#include "http/api/redis_query.h"
#include "limit/json_text.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::http {

/// The names of a key's records in Redis.
std::string redis_key_of(const ZoneConf& zone, std::string_view key, const Policy& policy);
std::string block_key_of(const ZoneConf& zone, std::string_view key, const Policy& policy);

/// If the zone's rate is a variable and none is given: the rate by which the key was refused last.
void use_last_rate(const ZoneConf& zone, std::string_view key, Policy& policy);

/// The policy by which a key with this override is counted. If the override does not change the
/// policy, or does not fit the zone, that of the whole zone. Empty: the rate or the first day of
/// the month is a variable whose value is not known.
std::optional<Policy> counting_policy(
    const ZoneConf& zone, std::string_view key, const std::optional<Override>& own);

/// The state of a key that is counted in this node's memory.
Verdict peek_local(const ZoneConf& zone, std::string_view key, const Policy& policy);

/// Whether anything is counted under a key in this state, or this node refused it within the last
/// hour (a key that an override blocks has no counts).
bool is_counted(
    const ZoneConf& zone, std::string_view key, const Policy& policy,
    const Verdict& state) noexcept;

/// Writes `counted` (null: not known) and `note`: what people should know of a key under which
/// nothing is counted, so that they do not take it for one that is not limited.
void write_counted(
    JsonText& json, const ZoneConf& zone, std::string_view key, std::optional<bool> counted);

/// Asks Redis for a key's state and takes nothing: runs the peek script for two limits of the same
/// key. The second has a cost that is always refused, and the first gets the key's state.
class KeyState : private ShardPart {
public:
    KeyState(const ZoneConf& zone, std::string_view key, const Policy& policy);

    /// False: nothing was sent, and `known` is not called.
    bool send() noexcept { return coalescer_.send(*this); }

    /// Null: Redis does not answer.
    const Verdict* state() const noexcept
    {
        return end == End::answered ? &limits_.front().state : nullptr;
    }
    /// Empty: Redis does not answer.
    std::optional<bool> counted() const noexcept
    {
        return state() == nullptr ? std::nullopt
                                  : std::optional(is_counted(zone_, key_, policy_, *state()));
    }

protected:
    /// The state is known, or Redis does not answer.
    virtual void known() noexcept = 0;

    const ZoneConf& zone_;
    const std::string key_;
    const Policy policy_;

private:
    void ended() noexcept final { known(); }

    const std::string redis_key_;
    const std::string block_key_;
    Coalescer& coalescer_;
    std::array<RemoteLimit, 2> limits_;
    const std::array<RemoteLimit*, 2> pointers_{ &limits_[0], &limits_[1] };
};

/// A request that waits for a key's state.
class KeyPeek : public RedisQuery, protected KeyState {
public:
    KeyPeek(ngx_http_request_t* r, const ZoneConf& zone, std::string_view key, const Policy& policy)
        : RedisQuery(r), KeyState(zone, key, policy)
    {
    }

    ngx_int_t ask() { return send() ? wait() : respond(); }

protected:
    /// `state`: null if Redis does not answer. Returns what a content handler returns.
    virtual ngx_int_t peeked(const Verdict* state) = 0;

private:
    ngx_int_t respond() final { return peeked(state()); }
    void known() noexcept final { answered(); }
};

}  // namespace ratelimit::http
