#pragma once

#include "limit/decision.h"

#include <span>

struct redisReply;

namespace ratelimit {

/// Reads a script's reply, for each limit in order: granted (1 or 0), remaining, reset
/// (microseconds), retry (microseconds; 0: granted, -1: never). False: the reply has another shape,
/// and `states` are not to be used.
bool read_reply(const redisReply& reply, std::span<LimitState> states) noexcept;

}  // namespace ratelimit
