#pragma once

#include "redis/endpoint.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

/// Hash slots, first to last, of one master.
struct SlotRange {
    std::uint16_t first = 0;
    std::uint16_t last = 0;
    Endpoint master;
};

/// Reads a reply to CLUSTER SLOTS: [first, last, [host, port, ...], replicas...] for each range. A
/// node that does not say where it is, is where the server that was asked is. Empty: not such a
/// reply, or one without any range.
std::optional<std::vector<SlotRange>> read_cluster_slots(
    const redisReply& reply, const Endpoint& asked);

/// "MOVED 3999 127.0.0.1:6381" or "ASK ...".
struct Redirection {
    bool asking = false;
    std::uint16_t slot = 0;
    Endpoint target;
};

/// Empty: not a redirection. `asked`: the server that answered.
std::optional<Redirection> read_redirection(std::string_view error, const Endpoint& asked);

}  // namespace ratelimit::redis
