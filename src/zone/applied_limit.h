#pragma once

#include "check/remote_limit.h"
#include "store/keyed_request.h"
#include "store/token_leases.h"
#include "zone/zone.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

class AheadReport;
class AheadUnits;
class HeldRequests;
class LeaseRenewals;
struct HeldUnits;

/// The source of a limit's decision.
enum class Source : std::uint8_t {
    redis,
    cache,       // a remembered refusal
    lease,       // tokens taken from Redis in advance
    ahead,       // Redis's last answer; Redis counts the request afterwards
    local,       // this node's memory
    overridden,  // a block that an operator set
};

/// As $ratelimit_source and the metrics have it.
constexpr std::string_view name_of(Source source) noexcept
{
    switch (source) {
    case Source::redis:
        return "redis";
    case Source::cache:
        return "cache";
    case Source::lease:
        return "lease";
    case Source::ahead:
        return "ahead";
    case Source::local:
        return "local";
    case Source::overridden:
        return "override";
    }
    return {};
}

/// One limit of one request: its evaluated parameters, and the decision. It must not move while the
/// request lives.
struct AppliedLimit : RemoteLimit {
    const Zone* zone = nullptr;
    std::size_t configured = 0;  // index in the configuration of its location
    bool malformed = false;      // the rate is malformed: the fail mode decides
    /// An override blocks the key for this time.
    std::optional<microseconds> blocked_for;
    /// The time until the override that sets the policy ends. Empty: there is none, or no end.
    std::optional<microseconds> override_ends;
    /// leaky_bucket: how many requests above the rate pass without delay; empty: all.
    std::optional<std::int64_t> undelayed;

    /// For a limit counted in Redis: a lower bound of the time when Redis decides, by
    /// NodeClock::time_of.
    microseconds began{ 0 };
    std::uint8_t forgets = 0;       // DenialCache::forgets_of its key, from before it was sent
    std::int64_t lease_wanted = 0;  // how many requests to lease; if one paid: in a renewal
    /// The lease that paid for the request.
    std::optional<TokenLeases::TokenSource> lease;
    LeaseRenewals* renewals = nullptr;  // of a zone with lease=; null: none

    /// In a zone with ahead=: the units that this worker has let in. Null: none.
    AheadUnits* ahead = nullptr;
    AheadReport* report = nullptr;  // if the request's cost may change: the report that has it

    /// Where the request is registered while it holds units in this node's memory; null: not a
    /// concurrency limit.
    HeldRequests* holds = nullptr;
    HeldUnits* held_here = nullptr;  // null: none

    bool decided = false;  // `source` and `state` are valid
    Source source = Source::redis;

    bool in_redis() const noexcept { return coalescer != nullptr; }
    bool awaits_redis() const noexcept { return in_redis() && !decided; }
    KeyedRequest keyed() const noexcept { return { key, policy_hash, cost }; }
};

}  // namespace ratelimit
