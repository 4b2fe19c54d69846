#pragma once

#include "loop/event_loop.h"
#include "redis/context_owner.h"
#include "redis/endpoint.h"

#include <string>
#include <string_view>

struct redisReply;
struct ssl_st;

namespace ratelimit::redis {

class TlsContext;

/// The reasons if this process cannot open another connection, which is not the server's fault.
inline constexpr std::string_view no_connection_left = "no worker_connections are left";
inline constexpr std::string_view no_file_left = "no file descriptors are left";

inline bool is_own_lack(std::string_view reason) noexcept
{
    return reason == no_connection_left || reason == no_file_left;
}

/// A connection of hiredis, from the attempt to connect until it is closed.
class Context : private ContextOwner {
public:
    ~Context() override { free(); }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    /// Begins to connect, in the loop. False: it failed; see `reason`.
    bool connect(EventLoop& loop, const Endpoint& server, std::string& reason);
    bool open() const noexcept { return context_ != nullptr; }
    /// From now on it is encrypted. `host`: see TlsContext::start, which may throw.
    void start_tls(const TlsContext& tls, const std::string& host);
    /// Null: no TLS.
    const ssl_st* tls() const noexcept { return tls_; }
    /// Adds commands to what is written at the end of the loop's turn. `reply`: call_replied gets
    /// the reply. False: out of memory, or it is closed.
    bool issue(std::string_view commands, bool reply = true) noexcept;
    /// Closes it: its owner is called no more.
    void free() noexcept;

protected:
    Context() = default;
    /// hiredis's, while it is open.
    redisAsyncContext& context() const noexcept { return *context_; }

private:
    virtual void connected() noexcept = 0;
    /// It is closed. `reason` is valid until this returns.
    virtual void disconnected(std::string_view reason) noexcept = 0;
    /// The reply to a command that was issued with `reply`.
    virtual void call_replied(const redisReply& reply) noexcept = 0;

    struct Callbacks;

    redisAsyncContext* context_ = nullptr;
    const ssl_st* tls_ = nullptr;  // of the context
};

}  // namespace ratelimit::redis
