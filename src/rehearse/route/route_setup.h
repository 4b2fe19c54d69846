#pragma once

#include "rehearse/route/http_conf.h"
#include "rehearse/values/request_facts.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// Declares the variables that the locations of a server set.
void declare_routes(const ServerConf& server, Scope& scope);

/// Compiles where the locations of a server send requests, and the variables of its limits. Warns
/// of those that the log does not have. After declare_routes; again, if more variables are needed.
void compile_routes(
    ServerConf& server, Scope& scope, const RequestFacts& facts,
    std::vector<std::string>& warnings);

/// A server without limits that redirects clients to this one, as that of port 80 to that of port
/// 443: both may write into one log. `by_name`: the log tells the host of a request, or the user
/// does. Null: there is none.
const Directive* redirects_to(const HttpConf& conf, const ServerConf& server, bool by_name);

}  // namespace ratelimit::rehearse
