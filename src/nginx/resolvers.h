#pragma once

#include "nginx/ngx.h"

#include <array>

namespace ratelimit::nginx {

/// How the names of Redis servers are looked up.
struct Resolvers {
    // One for IPv4 and one for both or IPv6: errors of one family do not hide the other. Or one of
    // both. Null: none.
    std::array<ngx_resolver_t*, 2> each{};
    ngx_msec_t timeout = 0;  // of one look-up
    // http {} has a "resolver": it is for all names. Otherwise they are of /etc/resolv.conf, for
    // names whose address is not known.
    bool chosen = false;

    bool any() const noexcept { return each[0] != nullptr; }
};

/// Makes those of a configuration that is read. `chosen`: that of http {}, which may have no
/// servers. False: out of memory.
bool make_resolvers(ngx_conf_t* cf, ngx_resolver_t* chosen, ngx_msec_t timeout, Resolvers& out);

}  // namespace ratelimit::nginx
