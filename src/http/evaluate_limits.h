#pragma once

#include "http/conf.h"
#include "zone/applied_limit.h"

#include <optional>
#include <span>

namespace ratelimit::http {

/// Evaluates keys, rates and costs of a location's limits for this request: those that apply, in
/// order; a limit whose key or rate is empty does not. No value: out of memory, or nginx could not
/// evaluate a variable.
std::optional<std::span<AppliedLimit>> evaluate_limits(ngx_http_request_t* r, const LimitSet& set);

}  // namespace ratelimit::http
