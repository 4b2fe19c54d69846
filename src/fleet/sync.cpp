#include "fleet/sync.h"

#include "lua_scripts.h"

#include <algorithm>
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
    calls_ = 0;
    running_ = send();
    return running_;
}

/// Any value may stand in shared memory.
std::uint32_t Sync::page() const noexcept
{
    const std::uint32_t known = parts_.memory.shared().page.load();
    return known == 0 ? most : std::clamp(known, least, most);
}

void Sync::set_page(std::uint32_t changes) const noexcept
{
    parts_.memory.shared().page.store(std::clamp(changes, least, most));
}

bool Sync::send()
{
    const auto known = known_of(parts_.memory, parts_.storage);
    if (!known) {
        return false;
    }
    routing = {};
    sent_ = *known;
    sent_.reports = !state_.empty();
    return parts_.client.send(*this);
}

void Sync::write(redis::CommandBuffer& command) const
{
    parts_.keys.begin_script(parts_.script, 5, command);
    command.arg(parts_.memory.id());
    command.arg(std::string_view(state_));
    command.arg(static_cast<std::int64_t>(sent_.cursor));
    command.arg(std::int64_t{ page() });
    command.arg(std::int64_t{ sent_.in_full_read ? 1 : 0 });
}

bool Sync::on_reply(const redisReply& reply) noexcept
try {
    const auto parsed = SyncReply::parse(reply);
    if (!parsed) {
        return false;
    }
    const microseconds now = parts_.clock.monotonic();
    if (parts_.memory.follows(parts_.storage)) {
        parts_.memory.shared().heard_us.store(now.count());
        if (sent_.reports) {
            parts_.memory.shared().reported_us.store(now.count());
        }
    }
    const Applied applied = apply_changes(parts_.memory, *parsed, sent_, now, parts_.changes);
    if (parsed->more) {
        set_page(page() + page() / 4);
    }
    if (applied == Applied::all) {
        end(End::known);
    } else if (applied == Applied::more && ++calls_ == most_in_a_row) {
        end(End::part);
    } else if (applied != Applied::more || !send()) {
        end(End::failed);
    }
    return true;
} catch (const std::exception&) {
    return false;  // out of memory
}

/// A Redis that refuses to write (it cannot save to its disk, the user lacks a right, a key has a
/// wrong type) may be read all the same: its overrides are in force on every node.
void Sync::ended(redis::Fate fate) noexcept
try {
    using redis::Fate;
    const bool refused = (fate == Fate::refused || fate == Fate::failed) && !state_.empty();
    if (fate == Fate::overdue || fate == Fate::expired) {
        set_page(page() / 4);
    }
    state_.clear();
    if (!refused || !send()) {
        end(End::failed);
    }
} catch (const std::exception&) {
    end(End::failed);  // out of memory
}

void Sync::end(End how) noexcept
{
    running_ = false;
    owner_.synced(how);
}

}  // namespace ratelimit::fleet
