#pragma once

#include "loop/event_loop.h"
#include "redis/context_owner.h"
#include "redis/endpoint.h"

#include <string>
#include <string_view>

namespace ratelimit::redis {

/// The reasons if this process cannot open another connection, which is not the server's fault.
inline constexpr std::string_view no_connection_left = "no worker_connections are left";
inline constexpr std::string_view no_file_left = "no file descriptors are left";

inline bool is_own_lack(std::string_view reason) noexcept
{
    return reason == no_connection_left || reason == no_file_left;
}

/// Begins to connect, in the loop. The caller owns the context. Null: it failed; see `reason`.
redisAsyncContext* open_context(
    EventLoop& loop, const Endpoint& server, ContextOwner& owner, std::string& reason);

/// Adds a command to what is written at the end of the loop's turn. `reply`: the owner that the
/// context has then gets its reply. False: out of memory.
bool issue_command(redisAsyncContext& context, std::string_view text, bool reply) noexcept;

/// Frees a context, which may be null, without calling its owner.
void free_context(redisAsyncContext* context) noexcept;

}  // namespace ratelimit::redis
