#pragma once

#include "rehearse/conf/conf_text.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// A `limit_req_zone` of nginx.
struct LimitReqZone {
    std::string name;
    std::string key;
    std::int64_t rate = 0;  // thousandths of a request in a second, as nginx rounds them
    std::string rate_text;
    Place place;
};

/// A `limit_req`. Requests are counted in thousandths.
struct LimitReqConf : WrittenLimit {
    static constexpr std::int64_t no_delay = std::numeric_limits<std::int64_t>::max();

    std::int64_t burst = 0;
    std::int64_t delay = 0;  // those beyond it wait; no_delay: none does
    bool dry_run = false;
    bool followed = true;  // its key can be computed
};

/// Reads a directive by the rules of nginx. Throws InputError.
LimitReqZone read_limit_req_zone(const Directive& directive);

/// The same. Empty: none of the zones has its name.
std::optional<LimitReqConf> read_limit_req(
    const Directive& directive, const std::vector<LimitReqZone>& zones);

/// "limit_req, 10r/s, burst 20, nodelay".
std::string policy_text(const LimitReqConf& limit, const LimitReqZone& zone);

}  // namespace ratelimit::rehearse
