#pragma once

#include "limit/grammar.h"
#include "rehearse/conf/conf_text.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// A ratelimit_zone, as it is written.
struct ZoneConf : ZoneSettings {
    Place place;
};

/// A `ratelimit zone=`, as it is written.
struct LimitConf : LimitSettings {
    std::size_t zone = 0;  // index
    Place place;
    std::size_t number = 0;  // of all limits of the configuration
};

/// Reads a directive by the rules of the module's `nginx -t`. Throws InputError.
ZoneConf read_zone(const Directive& directive);

/// The same for a `ratelimit` that is not `off`.
LimitConf read_limit(const Directive& directive, const std::vector<ZoneConf>& zones);

}  // namespace ratelimit::rehearse
