#pragma once

#include "loop/event_loop.h"
#include "redis/endpoint.h"

#include <string>
#include <string_view>

struct ssl_st;

namespace ratelimit::redis {

/// Who has a context; its `data` points here, or is null once the context has been given up: what
/// hiredis still calls then is of no interest.
class ContextOwner {
public:
    virtual ~ContextOwner() = default;
    virtual void connected() noexcept = 0;
    /// hiredis frees the context when this returns.
    virtual void disconnected(std::string_view reason) noexcept = 0;
    virtual const ssl_st* tls() const noexcept = 0;  // the context's; null: none
};

/// The reasons when this process has no room for one more connection: no fault of the server's.
inline constexpr std::string_view no_connection_left = "no worker_connections are left";
inline constexpr std::string_view no_file_left = "no file descriptors are left";

inline bool is_own_lack(std::string_view reason) noexcept
{
    return reason == no_connection_left || reason == no_file_left;
}

/// Begins to connect, in the loop. The caller owns the context. Null: it failed, for this `reason`.
redisAsyncContext* open_context(
    EventLoop& loop, const Endpoint& server, ContextOwner& owner, std::string& reason);

/// The owner's part in giving a context up, if there is one.
void free_context(redisAsyncContext* context) noexcept;

}  // namespace ratelimit::redis
