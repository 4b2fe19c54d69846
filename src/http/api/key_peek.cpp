#include "http/api/key_peek.h"

#include "http/shown_key.h"
#include "limit/calendar.h"
#include "nginx/clock.h"
#include "node/clocks.h"

namespace ratelimit::http {

std::string redis_key_of(const ZoneConf& zone, std::string_view key, const Policy& policy)
{
    std::string text(zone.zone.redis_key_length(key), '\0');
    text.resize(zone.zone.redis_key(key, zone.zone.record_of(policy), text.data()).size());
    return text;
}

std::string block_key_of(const ZoneConf& zone, std::string_view key, const Policy& policy)
{
    std::string text(zone.zone.redis_key_length(key), '\0');
    text.resize(zone.zone.block_key(key, policy.override_record, text.data()).size());
    return text;
}

void use_last_rate(const ZoneConf& zone, std::string_view key, Policy& policy)
{
    if (policy.rate.quota == 0) {
        policy.rate = zone.zone.memory().top_refused().last_rate(key).value_or(Rate{});
    }
}

std::optional<Policy> counting_policy(
    const ZoneConf& zone, std::string_view key, const std::optional<Override>& own)
{
    using Kind = Override::Kind;
    Policy policy = zone.zone.policy;
    const bool counts = own && (own->kind == Kind::rate || own->kind == Kind::concurrency)
        && misfit(*own, policy).empty();
    if (const auto used = counts ? own : zone.zone.override_of({})) {
        apply(*used, policy);
    }
    use_last_rate(zone, key, policy);
    if (policy.rate.quota == 0
        || (!zone.start_text.empty() && policy.rate.period == Period::month)) {
        return std::nullopt;
    }
    enter_period(policy, nginx::local_time());
    return policy;
}

Verdict peek_local(const ZoneConf& zone, std::string_view key, const Policy& policy)
{
    const LocalRequest request{ key, policy, 1, zone.zone.record_of(policy) };
    return zone.zone.memory().local_limiter().peek(request, node_clock.in_memory(policy));
}

bool is_counted(
    const ZoneConf& zone, std::string_view key, const Policy& policy, const Verdict& state) noexcept
{
    return state.remaining < policy.limit() || state.blocked.count() > 0
        || zone.zone.memory().top_refused().has(key, ngx_time());
}

void write_counted(
    JsonText& json, const ZoneConf& zone, std::string_view key, std::optional<bool> counted)
{
    if (!counted) {
        json.null("counted").null("note");
        return;
    }
    json.flag("counted", *counted);
    if (*counted) {
        json.null("note");
        return;
    }
    std::string note = "nothing is counted under this key now";
    if (is_address(key) && !zone.zone.addresses) {
        note += ": the keys of this zone are \"" + zone.key_text
            + "\", give one as the log and the busiest keys show it";
    }
    json.text("note", note);
}

KeyState::KeyState(const ZoneConf& zone, std::string_view key, const Policy& policy)
    : zone_(zone),
      key_(key),
      policy_(policy),
      redis_key_(redis_key_of(zone, key, policy)),
      block_key_(block_key_of(zone, key, policy)),
      coalescer_(zone.redis->coalescer())
{
    for (RemoteLimit& limit : limits_) {
        limit.key = key_;
        limit.redis_key = redis_key_;
        limit.block_key = block_key_;
        limit.policy = policy;
        limit.coalescer = &coalescer_;
        limit.scripts = zone.peek;
        limit.shard = coalescer_.client().shard_of(redis_key_);
        if (zone.zone.clock == Clock::local) {
            limit.now = nginx::local_time();
        }
    }
    limits_.back().cost = policy.limit() + 1;
    limits = pointers_;
}

}  // namespace ratelimit::http
