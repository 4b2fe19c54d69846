#pragma once

#include "loop/event_loop.h"
#include "redis/endpoint.h"

#include <string>

namespace ratelimit::redis {

/// Begins to connect, in the loop. The caller owns the context. Null: it failed, for this `reason`.
redisAsyncContext* open_context(EventLoop& loop, const Endpoint& server, std::string& reason);

}  // namespace ratelimit::redis
