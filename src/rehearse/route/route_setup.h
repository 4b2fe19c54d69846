#pragma once

#include "rehearse/route/http_conf.h"
#include "rehearse/route/request_facts.h"

#include <string>
#include <vector>

namespace ratelimit::rehearse {

/// Declares the variables that the locations of a server set.
void declare_routes(const ServerConf& server, Scope& scope);

/// Compiles where the locations of a server send requests, and the variables of its limits. Warns
/// of those that the log does not have.
void compile_routes(
    ServerConf& server, Scope& scope, const RequestFacts& facts,
    std::vector<std::string>& warnings);

}  // namespace ratelimit::rehearse
