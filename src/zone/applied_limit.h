#pragma once

#include "check/remote_limit.h"
#include "store/keyed_request.h"
#include "store/token_leases.h"
#include "zone/zone.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit {

/// What decided a limit.
enum class Source : std::uint8_t {
    redis,
    cache,  // a remembered refusal
    lease,  // tokens taken from Redis in advance
    local,  // this node's memory
};

/// One limit of one request: what was evaluated, and the decision. It stays at its address while
/// the request lives.
struct AppliedLimit : RemoteLimit {
    const Zone* zone = nullptr;
    std::string_view key;           // as it is counted; binary
    std::uint64_t policy_hash = 0;  // Zone::policy_hash, of the policy in Redis
    bool malformed = false;         // its rate cannot be read: the fail mode decides
    /// leaky_bucket: how many requests above the rate go at once, before others have to wait;
    /// empty: none waits.
    std::optional<std::int64_t> undelayed;

    /// If it is counted in Redis: when the check was made, at the latest, by NodeClock::time_of.
    microseconds asked{ 0 };
    std::int64_t lease_wanted = 0;  // requests that are worth leasing
    /// The lease that paid for the request.
    std::optional<TokenLeases::Source> lease;

    bool decided = false;  // `source` and `state` hold
    Source source = Source::redis;

    bool in_redis() const noexcept { return coalescer != nullptr; }
    KeyedRequest keyed() const noexcept { return { key, policy_hash, cost }; }
};

}  // namespace ratelimit
