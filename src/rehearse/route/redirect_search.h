#pragma once

#include "rehearse/route/http_conf.h"

namespace ratelimit::rehearse {

/// Beside a server with limits. `by_name`: the log tells the host of a request, or the user does.
RedirectServer redirects_beside(const HttpConf& conf, const ServerConf& server, bool by_name);

}  // namespace ratelimit::rehearse
