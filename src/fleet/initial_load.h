#pragma once

#include "fleet/fleet_keys.h"
#include "redis/client.h"
#include "store/fleet_memory.h"
#include "zone/node_clock.h"

#include <string>

namespace ratelimit::fleet {

/// Loads the overrides into memory, in the master process before there are workers, so that the
/// first decision knows them. `memory` follows `storage`. It waits for Redis's first answer at most
/// as long as a check would (connect_timeout and timeout), and two seconds in all. Returns why it
/// failed, one line that may have any bytes; empty: all overrides are known.
std::string load_overrides(
    const FleetMemory& memory, const redis::ClientOptions& options, const FleetKeys& keys,
    const NodeClock& clock, std::uint64_t storage = 0);

}  // namespace ratelimit::fleet
