#pragma once

#include "fleet/apply_changes.h"
#include "fleet/fleet_keys.h"
#include "redis/client.h"
#include "redis/script_registry.h"
#include "store/fleet_memory.h"
#include "zone/node_clock.h"

#include <string>

namespace ratelimit::fleet {

/// The text of lua/fleet_sync.lua.
redis::ScriptId add_sync_script(redis::ScriptRegistry& scripts);

/// Brings this node's memory up to date with Redis: one call of lua/fleet_sync.lua or, if much has
/// changed, several, one after another. Any worker may do so at any time. If a reply does not come
/// in time, as over a slow line, the calls of this node ask for fewer changes.
class Sync final : private redis::Call {
public:
    /// known: all changes. part: those of `most_in_a_row` calls, and there are more. failed: a
    /// call.
    enum class End : std::uint8_t { known, part, failed };

    class Owner {
    public:
        virtual ~Owner() = default;
        /// Never called from inside start.
        virtual void synced(End end) noexcept = 0;
    };

    /// Everything must outlive this object.
    struct Parts {
        FleetMemory memory;
        redis::Client& client;
        redis::ScriptId script;
        const FleetKeys& keys;
        const NodeClock& clock;
        ChangeListener& changes;
        std::uint64_t storage = 0;  // FleetMemory::follow: of this client and these keys
    };

    Sync(const Parts& parts, Owner& owner) noexcept : parts_(parts), owner_(owner)
    {
        repeatable = true;
        delays_exit = false;
    }

    /// `state`: what other nodes see of this one; empty: this node is not said to be there. False:
    /// a call could not be sent now, or the memory follows another Redis.
    bool start(std::string state);
    bool running() const noexcept { return running_; }

private:
    static constexpr std::uint32_t most = 1000;
    static constexpr std::uint32_t least = 16;
    /// A Redis that promises more in each reply does not keep a worker busy.
    static constexpr int most_in_a_row = 16;

    bool send();
    std::uint32_t page() const noexcept;
    void set_page(std::uint32_t changes) const noexcept;
    std::string_view routing_key() const noexcept override { return parts_.keys.state; }
    void write(redis::CommandBuffer& command) const override;
    std::size_t longest_reply() const noexcept override { return longest_page; }
    bool on_reply(const redisReply& reply) noexcept override;
    void ended(redis::Fate fate) noexcept override;
    void end(End end) noexcept;

    Parts parts_;
    Owner& owner_;
    std::string state_;
    Known sent_;
    int calls_ = 0;  // since start
    bool running_ = false;
};

}  // namespace ratelimit::fleet
