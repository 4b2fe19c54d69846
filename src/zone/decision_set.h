#pragma once

#include "limit/decision.h"
#include "limit/policy.h"

#include <cstddef>
#include <optional>
#include <span>

namespace ratelimit {

/// Who decided a limit.
enum class Source : std::uint8_t {
    redis,
    cache,  // this node, which remembers that Redis refuses
    lease,  // this node, of what Redis has counted ahead
    local,  // this node, which counts itself
};

/// One limit of a request with its answer.
struct DecidedLimit {
    Policy policy;
    LimitState state;
    /// leaky_bucket: how many requests above the rate go at once, before others have to wait;
    /// empty: none waits.
    std::optional<std::int64_t> undelayed;
    bool shadow = false;
    Source source = Source::redis;
};

/// What several limits make of one request together.
struct Outcome {
    bool refused = false;
    microseconds wait{ 0 };  // before a passed request goes on
    std::optional<microseconds> retry_after{ microseconds{ 0 } };  // as in LimitState
    /// Index of the limit that decided: refused, for the longest time; or delays longest; or has
    /// the least left.
    std::size_t decided_by = 0;
    /// Index of the limit with the least left by share of what it can ever hold. Shadow limits do
    /// not speak, unless there are no others.
    std::size_t least_left = 0;
};

/// `limits` is not empty.
Outcome outcome_of(std::span<const DecidedLimit> limits) noexcept;

/// How long a request that leaky_bucket let in has to wait for its turn, as limit_req counts: its
/// excess is what the bucket holds besides it.
microseconds delay_of(const DecidedLimit& limit) noexcept;

}  // namespace ratelimit
