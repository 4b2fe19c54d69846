#pragma once

#include "conf/conf.h"
#include "fleet/node_report.h"

#include <string>

namespace ratelimit::http {

/// Identifies the settings of a zone that all nodes of a fleet must have in common: all that decide
/// about a request or where it is counted, but not the memory of the node. 16 hexadecimal digits.
///
/// The same settings have the same digest in every version, or nodes would be shown as differing
/// while a fleet is upgraded. So a setting that a version adds is part of it only where it is not
/// the default.
std::string settings_digest(const ZoneConf& zone);

/// What this node says of itself: all but its name and its age.
fleet::NodeReport node_figures(const MainConf& conf);

/// The settings of each zone. Reads no memory of the workers.
std::vector<FleetMember::ZoneSettings> each_zones_settings(const MainConf& conf);

}  // namespace ratelimit::http
