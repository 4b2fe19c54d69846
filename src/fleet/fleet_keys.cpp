#include "fleet/fleet_keys.h"

namespace ratelimit::fleet {

void FleetKeys::begin_script(
    redis::ScriptId script, std::size_t numbers, redis::CommandBuffer& command) const
{
    const auto all = {
        &alive, &nodes, &changes, &overrides, &ends, &events, &state, &journal, &gone
    };
    command.begin_script(script, { all.size(), numbers });
    for (const std::string* key : all) {
        command.key(*key);
    }
}

std::string ChangeId::text() const
{
    std::string text(1, static_cast<char>(kind));
    text += zone;
    if (kind != Kind::zone_override) {
        text += '\0';
        text += key;
    }
    return text;
}

std::optional<ChangeId> parse_change_id(std::string_view text) noexcept
{
    using Kind = ChangeId::Kind;
    if (text.empty()) {
        return std::nullopt;
    }
    ChangeId id{ static_cast<Kind>(text.front()), text.substr(1), {} };
    if (id.kind == Kind::zone_override) {
        const bool good = !id.zone.empty() && id.zone.find('\0') == std::string_view::npos;
        return good ? std::optional(id) : std::nullopt;
    }
    if (id.kind != Kind::key_override && id.kind != Kind::freed_key) {
        return std::nullopt;
    }
    const auto end = id.zone.find('\0');
    if (end == 0 || end == std::string_view::npos) {
        return std::nullopt;
    }
    id.key = id.zone.substr(end + 1);
    id.zone = id.zone.substr(0, end);
    return id.key.empty() || id.key.size() > longest_key ? std::nullopt : std::optional(id);
}

}  // namespace ratelimit::fleet
