#pragma once

#include "limit/grammar.h"
#include "rehearse/conf/conf_text.h"

#include <vector>

namespace ratelimit::rehearse {

/// A ratelimit_zone, as it is written.
struct ZoneConf : ZoneSettings {
    Place place;
};

/// A `ratelimit zone=`.
struct LimitConf : LimitSettings, WrittenLimit {
    std::size_t number_in_zone = 0;  // of the limits of its zone
    Policy policy;                   // of the zone, with the burst and the reserve

    bool variable_rate() const noexcept { return policy.rate.quota == 0; }
};

/// Reads a directive by the rules of the module's `nginx -t`. Throws InputError.
ZoneConf read_zone(const Directive& directive);

/// The same for a `ratelimit` that is not `off`.
LimitConf read_limit(const Directive& directive, const std::vector<ZoneConf>& zones);

}  // namespace ratelimit::rehearse
