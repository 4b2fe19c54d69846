#include "fleet/sync.h"

#include "lua_scripts.h"

#include <utility>

namespace ratelimit::fleet {

redis::ScriptId add_sync_script(redis::ScriptRegistry& scripts)
{
    return scripts.add(std::string(lua::fleet_sync));
}

bool Sync::start(std::string state)
{
    if (running_) {
        return true;
    }
    state_ = std::move(state);
    running_ = send();
    return running_;
}

bool Sync::send()
{
    routing = {};
    {
        const FleetMemory::Lock lock(parts_.memory);
        sent_ = parts_.memory.shared().cursor;
        in_pass_ = parts_.memory.shared().in_pass;
    }
    return parts_.client.send(*this);
}

void Sync::write(redis::CommandBuffer& command) const
{
    const FleetKeys& keys = parts_.keys;
    const auto all = { &keys.alive, &keys.nodes,  &keys.changes, &keys.overrides,
                       &keys.ends,  &keys.events, &keys.state };
    command.begin_script(parts_.script, { all.size(), 5 });
    for (const std::string* key : all) {
        command.key(*key);
    }
    command.arg(parts_.memory.id());
    command.arg(std::string_view(state_));
    command.arg(static_cast<std::int64_t>(sent_));
    command.arg(page);
    command.arg(std::int64_t{ in_pass_ ? 1 : 0 });
}

bool Sync::on_reply(const redisReply& reply) noexcept
try {
    const auto parsed = SyncReply::parse(reply);
    if (!parsed) {
        return false;
    }
    const microseconds now = parts_.clock.monotonic();
    parts_.memory.shared().heard_us.store(now.count());
    if (!apply_changes(parts_.memory, *parsed, sent_, now, parts_.owner)) {
        end(End::known);
    } else if (!send()) {
        end(End::failed);
    }
    return true;
} catch (const std::exception&) {
    return false;  // out of memory
}

void Sync::on_failure(redis::Failure) noexcept
{
    end(End::failed);
}

void Sync::end(End how) noexcept
{
    running_ = false;
    parts_.owner.synced(how);
}

}  // namespace ratelimit::fleet
