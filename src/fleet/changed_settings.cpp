#include "fleet/changed_settings.h"

#include "fleet/node_report.h"
#include "store/override_table.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace ratelimit::fleet {

namespace {

constexpr std::size_t room_for_rest = 60;  // "and 256 more zones, 256 zones are gone"

std::string names_of_changed(std::string_view before, std::string_view after)
{
    std::string names;
    for (std::size_t i = 0; i < setting_names.size(); ++i) {
        const std::size_t from = i * digits_of_setting;
        if (from < after.size()
            && before.substr(from, digits_of_setting) != after.substr(from, digits_of_setting)) {
            names += (names.empty() ? "" : ", ") + std::string(setting_names[i]);
        }
    }
    return names;
}

}  // namespace

std::string changed_settings(
    std::span<const NodePast::ZoneSettings> before,
    std::span<const std::pair<std::string, std::string>> after)
{
    std::unordered_map<std::uint64_t, std::string_view> known;
    for (const NodePast::ZoneSettings& zone : before) {
        known.emplace(zone.zone, std::string_view(zone.digits.data(), zone.digits.size()));
    }
    constexpr std::size_t room = decltype(NodePast::Load::bytes){}.size() - room_for_rest;
    std::string text;
    std::size_t more = 0;
    const auto add = [&text](const std::string& part) {
        text += (text.empty() ? "" : ", ") + part;
    };
    for (const auto& [zone, digits] : after) {
        const auto found = known.find(OverrideTable::zone_hash(zone));
        const std::string changed =
            found == known.end() ? "new" : names_of_changed(found->second, digits);
        if (found != known.end()) {
            known.erase(found);
        }
        if (changed.empty()) {
            continue;
        }
        if (text.size() + zone.size() + changed.size() > room) {
            ++more;
        } else {
            add(std::string(zone).append(" (").append(changed).append(")"));
        }
    }
    if (more > 0) {
        add(std::to_string(more) + (more == 1 ? " more zone" : " more zones"));
    }
    if (!known.empty()) {
        add(std::to_string(known.size()) + (known.size() == 1 ? " zone" : " zones") + " removed");
    }
    return text;
}

}  // namespace ratelimit::fleet
