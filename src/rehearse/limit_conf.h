#pragma once

#include "limit/policy.h"
#include "rehearse/conf_text.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::rehearse {

/// A ratelimit_zone, as it is written.
struct ZoneConf {
    std::string name;
    std::string key;        // with variables
    std::string rate_text;  // as written; empty: concurrency=
    Policy policy;          // a quota of 0: the rate is a variable
    bool hash_key = false;
    Place place;

    bool variable_rate() const noexcept { return policy.rate.quota == 0; }
};

/// A `ratelimit zone=`, as it is written.
struct LimitConf {
    std::size_t zone = 0;  // index
    std::optional<std::int64_t> burst;
    std::optional<std::int64_t> delay;
    bool nodelay = false;
    bool shadow = false;
    std::int64_t cost = 1;
    std::string cost_text;  // with variables; empty: `cost`
    std::string charge;     // a variable; empty: none
    Place place;
    std::size_t number = 0;  // of all limits of the configuration
};

/// Reads a directive by the rules of the module's `nginx -t`. Throws InputError.
ZoneConf read_zone(const Directive& directive);

/// The same for a `ratelimit` that is not `off`.
LimitConf read_limit(const Directive& directive, const std::vector<ZoneConf>& zones);

/// "60r/m", "90r/15s": as parse_rate reads it.
std::string rate_text(const Rate& rate);

}  // namespace ratelimit::rehearse
