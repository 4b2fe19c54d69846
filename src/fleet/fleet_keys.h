#pragma once

#include "redis/script_registry.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ratelimit::fleet {

/// The names of a fleet's keys in Redis, which are in one hash slot (lua/fleet_sync.lua says what
/// they hold).
struct FleetKeys {
    /// `prefix`: of the ratelimit_redis block. No zone's key begins like these: a zone has a name.
    explicit FleetKeys(const std::string& prefix)
        : alive(prefix + "{fleet}:alive"),
          nodes(prefix + "{fleet}:nodes"),
          changes(prefix + "{fleet}:changes"),
          overrides(prefix + "{fleet}:overrides"),
          ends(prefix + "{fleet}:ends"),
          events(prefix + "{fleet}:events"),
          state(prefix + "{fleet}:state"),
          journal(prefix + "{fleet}:journal"),
          gone(prefix + "{fleet}:gone")
    {
    }

    /// A call of a script that has all keys, in the order of lua/fleet_sync.lua.
    void begin_script(
        redis::ScriptId script, std::size_t numbers, redis::CommandBuffer& command) const;

    std::string alive;
    std::string nodes;
    std::string changes;
    std::string overrides;
    std::string ends;
    std::string events;
    std::string state;
    std::string journal;
    std::string gone;
};

/// In bytes. Longer keys are counted by their hash.
inline constexpr std::size_t longest_key = 128;

/// The most memory of a reply with overrides: two thousand changes, with ids and texts of 4096
/// bytes each, since Redis may hold texts that no node wrote (lua/fleet_sync.lua).
inline constexpr std::size_t longest_page = std::size_t{ 32 } * 1024 * 1024;

/// The subject of a change.
struct ChangeId {
    enum class Kind : char {
        zone_override = 'z',
        key_override = 'k',
        freed_key = 'f',
    };

    Kind kind = Kind::zone_override;
    std::string_view zone;
    std::string_view key;  // as it is counted; empty for a zone's override

    /// As in Redis.
    std::string text() const;
};

/// Parses an id; the result refers to `text`. Empty: it is none.
std::optional<ChangeId> parse_change_id(std::string_view text) noexcept;

}  // namespace ratelimit::fleet
