#pragma once

#include "redis/endpoint.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

/// The hash slots from `first` to `last`, inclusive, of one master.
struct SlotRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    Endpoint master;
};

/// Reads a reply to CLUSTER SLOTS: [first, last, [host, port, ...], replicas...] for each range. A
/// missing host is that of `sender`, the server that replied. Empty: malformed, or without ranges.
std::optional<std::vector<SlotRange>> read_cluster_slots(
    const redisReply& reply, const Endpoint& sender);

/// "MOVED 3999 127.0.0.1:6381" or "ASK ...".
struct Redirection {
    bool asking = false;
    std::uint16_t slot = 0;
    Endpoint target;
};

/// Reads an error reply of `sender`. Empty: not a redirection.
std::optional<Redirection> read_redirection(std::string_view error, const Endpoint& sender);

}  // namespace ratelimit::redis
