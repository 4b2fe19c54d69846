#pragma once

#include "rehearse/values/variables.h"

#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// Whether a text has a variable that comes, by way of maps, from one that nginx knows only with
/// the response. nginx -t does not see through maps.
bool is_late_by_map(std::string_view text, const Definitions& definitions);

/// The lines of the map of a rate whose value is malformed; none if the rate is not one variable
/// with a map. A rate of 0 is not meant: it refuses a plan.
std::vector<const Directive*> malformed_rates(
    std::string_view rate, const Definitions& definitions);

}  // namespace ratelimit::rehearse
