#pragma once

#include "fleet/fleet_keys.h"
#include "fleet/override_text.h"
#include "redis/call.h"
#include "redis/script_registry.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::fleet {

/// The scripts of the API: lua/fleet_change.lua, lua/fleet_list.lua and lua/fleet_nodes.lua.
struct ApiScripts {
    redis::ScriptId change{};
    redis::ScriptId list{};
    redis::ScriptId nodes{};

    static ApiScripts add_to(redis::ScriptRegistry& scripts);
};

/// A call of lua/fleet_change.lua. Only freeing is repeatable: between two times of setting or
/// removing, another node could have made another change, which the second time would undo.
class ChangeCall : public redis::Call {
public:
    enum class Change : std::uint8_t { set, remove, free };

    /// The most overrides of a fleet.
    static constexpr std::int64_t most = 1'000'000;

    /// `id`: ChangeId::text. `text`: of begin_stored, else of begin_noted. `time`: for Change::set.
    /// `condition`: the change is made only if there is an override ("*"), if there is none ("-"),
    /// or if the SHA-1 of its text in Redis is this one; empty: always.
    ChangeCall(
        redis::ScriptId script, const FleetKeys& keys, Change change, std::string id,
        std::string text, OverrideTime time = {}, std::string condition = {});

    std::string_view routing_key() const noexcept final { return keys_.state; }
    void write(redis::CommandBuffer& command) const final;
    bool on_reply(const redisReply& reply) noexcept final;

    /// Whether a call that ended so may have been executed, or may still be. An error reply comes
    /// before the script writes.
    static bool maybe_changed(redis::Fate fate) noexcept
    {
        return fate == redis::Fate::lost || fate == redis::Fate::overdue;
    }

protected:
    /// The call was executed. `found`: remove: there was one; set: there was room. `text`: set: the
    /// override as Redis has it now.
    virtual void changed(bool found, std::string_view text) noexcept = 0;
    /// The condition does not hold: nothing was changed.
    virtual void outdated() noexcept {}

private:
    const redis::ScriptId script_;
    const FleetKeys& keys_;
    const Change change_;
    const std::string id_;
    const std::string text_;
    const OverrideTime time_;
    const std::string condition_;
};

/// Asks for one override.
class LookupCall : public redis::CommandCall {
public:
    /// `id`: ChangeId::text.
    LookupCall(const FleetKeys& keys, std::string_view id);

    std::size_t longest_reply() const noexcept final { return longest_page; }
    bool on_reply(const redisReply& reply) noexcept final;

protected:
    /// `text`: the override as Redis has it; empty: there is none.
    virtual void found(std::string_view text) noexcept = 0;
};

/// A page of overrides (lua/fleet_list.lua).
struct OverridePage {
    struct Item {
        std::string zone;
        std::string key;  // empty: of the whole zone
        StoredOverride stored;
    };
    milliseconds now{ 0 };  // by Redis's clock
    std::int64_t next = 0;  // after which version the next page begins; 0: there is none
    std::vector<Item> items;
};

class ListCall : public redis::Call {
public:
    /// `zone`: lists its overrides, the oldest first; empty: those of all zones, the newest first.
    /// `after`: the `next` of the page before, or 0.
    ListCall(
        redis::ScriptId script, const FleetKeys& keys, std::string zone, std::int64_t after,
        std::int64_t most);

    std::string_view routing_key() const noexcept final { return keys_.state; }
    void write(redis::CommandBuffer& command) const final;
    std::size_t longest_reply() const noexcept final { return longest_page; }
    bool on_reply(const redisReply& reply) noexcept final;

protected:
    virtual void listed(OverridePage page) noexcept = 0;

private:
    const redis::ScriptId script_;
    const FleetKeys& keys_;
    const std::string zone_;
    const std::int64_t after_;
    const std::int64_t most_;
};

}  // namespace ratelimit::fleet
