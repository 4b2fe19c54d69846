#pragma once

#include "limit/decision.h"

#include <span>

struct redisReply;

namespace ratelimit {

/// Reads the reply of single_script or several_script: a string with, for each limit in order, four
/// signed 64-bit big-endian integers: granted (1 or 0), remaining, reset (microseconds), retry
/// (microseconds; 0: granted, -1: never); and of several, Redis's time, for which `server_time` has
/// room, after them. False: the reply has another shape, and `states` are not to be used.
bool read_reply(
    const redisReply& reply, std::span<LimitState> states,
    microseconds* server_time = nullptr) noexcept;

}  // namespace ratelimit
