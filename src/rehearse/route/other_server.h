#pragma once

#include "rehearse/route/http_conf.h"

namespace ratelimit::rehearse {

/// A server without limits that redirects clients to this one, as that of port 80 to that of port
/// 443: both may write into one log. `by_name`: the log tells the host of a request, or the user
/// does. Null: there is none.
const Directive* redirects_to(const HttpConf& conf, const ServerConf& server, bool by_name);

}  // namespace ratelimit::rehearse
