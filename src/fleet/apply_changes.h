#pragma once

#include "fleet/sync_reply.h"
#include "store/fleet_memory.h"

#include <string_view>

namespace ratelimit::fleet {

/// Gets what changes of the fleet mean for this node's other memory.
class ChangeListener {
public:
    virtual ~ChangeListener() = default;
    /// An operator freed the key, on any node.
    virtual void freed(std::string_view zone, std::string_view key) noexcept = 0;
    /// The key's override was set, ended or taken back.
    virtual void changed(std::string_view zone, std::string_view key) noexcept = 0;
};

/// Brings the node's memory to the state of the reply to a call that was sent with the cursor
/// `sent`. Replies may arrive late and in any worker: one that does not follow what is known now
/// changes nothing. `now`: monotonic. Returns whether more should be asked for at once.
bool apply_changes(
    const FleetMemory& memory, const SyncReply& reply, std::uint64_t sent, microseconds now,
    ChangeListener& listener);

}  // namespace ratelimit::fleet
