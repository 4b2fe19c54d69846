#pragma once

#include "limit/override.h"

#include <cstdint>
#include <optional>
#include <string_view>

struct redisReply;

namespace ratelimit::fleet {

/// The reply of lua/fleet_sync.lua. It refers to hiredis's reply.
class SyncReply {
public:
    struct Change {
        std::uint64_t version = 0;
        std::string_view id;    // as in Redis, unchecked
        std::string_view text;  // of an override, unchecked; empty: an event
    };

    /// Empty: malformed.
    static std::optional<SyncReply> parse(const redisReply& reply) noexcept;

    std::size_t size() const noexcept;
    /// Empty: this one is malformed.
    std::optional<Change> change(std::size_t index) const noexcept;

    microseconds now{ 0 };     // by Redis's clock
    std::uint64_t from = 0;    // the cursor that the changes follow; 0: it is all of them
    std::uint64_t cursor = 0;  // for the next call
    std::uint32_t nodes = 0;   // that live
    microseconds listed{ 0 };  // for how long Redis has had a list of nodes
    OverrideDigest digest;     // of all overrides
    bool more = false;

private:
    explicit SyncReply(const redisReply& reply) noexcept : reply_(&reply) {}

    const redisReply* reply_;
};

}  // namespace ratelimit::fleet
