#pragma once

#include <cstddef>

namespace ratelimit::redis {

/// What the reader of a hiredis context needs of its owner, to which the context's `data` points.
/// `data` is null once the owner has closed it; callbacks of hiredis are then ignored.
class ContextOwner {
public:
    virtual ~ContextOwner() = default;
    /// The most memory of the oldest reply that is awaited (ReplyLimits).
    virtual std::size_t longest_reply() const noexcept = 0;
    /// A step of the TLS handshake was made.
    virtual void progressed() noexcept {}
};

}  // namespace ratelimit::redis
