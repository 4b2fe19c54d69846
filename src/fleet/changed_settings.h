#pragma once

#include "store/node_past.h"

#include <span>
#include <string>
#include <utility>

namespace ratelimit::fleet {

/// What a reload changed, for people and no longer than NodePast::Load has room for: "per_ip (rate,
/// burst), login (new)". `after`: zones by name, each with NodeReport::Zone::each_setting. Empty:
/// no zone's settings.
std::string changed_settings(
    std::span<const NodePast::ZoneSettings> before,
    std::span<const std::pair<std::string, std::string>> after);

}  // namespace ratelimit::fleet
