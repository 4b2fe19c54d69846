#pragma once

#include "fleet/sync_reply.h"
#include "store/fleet_memory.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ratelimit::fleet {

/// Is notified of changes of the fleet that concern this node's other memory.
class ChangeListener {
public:
    virtual ~ChangeListener() = default;
    /// An operator freed the key, on any node.
    virtual void freed(std::string_view zone, std::string_view key) noexcept = 0;
    /// The key's override was set, ended or taken back.
    virtual void changed(std::string_view zone, std::string_view key) noexcept = 0;
    /// Redis has lost this many overrides that were in force and that no operator took back.
    virtual void lost(std::uint64_t /*count*/) noexcept {}
};

/// The node's state when a call was sent.
struct Known {
    std::uint64_t storage = 0;  // FleetMemory::follow
    std::uint64_t cursor = 0;
    bool in_full_read = false;
    bool reports = false;  // it says that this node is there
};

/// Empty: the memory follows another place than `storage`, or cannot be used now.
std::optional<Known> known_of(const FleetMemory& memory, std::uint64_t storage) noexcept;

enum class Applied : std::uint8_t {
    all,      // this is the latest state
    more,     // a further call should be sent at once
    nothing,  // the reply cannot be used
};

/// Brings the node's memory to the state of the reply to a call that was sent with `sent`. Replies
/// may arrive late and in any worker, also in one of an earlier configuration with another Redis: a
/// reply that does not follow what is known now changes nothing. `now`: monotonic.
Applied apply_changes(
    const FleetMemory& memory, const SyncReply& reply, const Known& sent, microseconds now,
    ChangeListener& listener);

}  // namespace ratelimit::fleet
