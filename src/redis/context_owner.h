#pragma once

#include <cstddef>
#include <string_view>

struct redisReply;
struct ssl_st;

namespace ratelimit::redis {

/// The owner of a hiredis context, to which the context's `data` points. `data` is null once the
/// owner has freed the context; callbacks of hiredis are then ignored.
class ContextOwner {
public:
    virtual ~ContextOwner() = default;
    virtual void connected() noexcept = 0;
    /// A step of the TLS handshake was made.
    virtual void progressed() noexcept {}
    /// hiredis frees the context when this returns.
    virtual void disconnected(std::string_view reason) noexcept = 0;
    /// The reply to a command that was issued with `reply`.
    virtual void call_replied(const redisReply& reply) noexcept = 0;
    virtual const ssl_st* tls() const noexcept = 0;  // of the context; null: no TLS
    /// The most memory of the oldest reply that is awaited (ReplyLimits).
    virtual std::size_t longest_reply() const noexcept = 0;
};

}  // namespace ratelimit::redis
