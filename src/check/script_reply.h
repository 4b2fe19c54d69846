#pragma once

#include "limit/decision.h"

#include <span>

struct redisReply;

namespace ratelimit {

/// Reads a script's reply: a string with, for each limit in order, four signed 64-bit big-endian
/// integers: granted (1 or 0), remaining, reset (microseconds), retry (microseconds; 0: granted,
/// -1: never). False: the reply has another shape, and `states` are not to be used.
bool read_reply(const redisReply& reply, std::span<LimitState> states) noexcept;

}  // namespace ratelimit
