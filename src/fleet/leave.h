#pragma once

#include "fleet/fleet_keys.h"
#include "redis/client.h"

#include <string_view>

namespace ratelimit::fleet {

/// Says that a node has ended (lua/fleet_leave.lua), in its master process, when there is no worker
/// any more: a later report of one would put the node back into the list. `id`: of FleetMemory::id.
/// Waits for Redis as long as a check would (connect_timeout and timeout), at most two seconds.
/// False: Redis did not answer.
bool leave_fleet(std::string_view id, const redis::ClientOptions& options, const FleetKeys& keys);

}  // namespace ratelimit::fleet
