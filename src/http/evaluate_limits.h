#pragma once

#include "conf/conf.h"
#include "zone/applied_limit.h"

#include <optional>
#include <span>

namespace ratelimit::http {

/// Evaluates key, rate and cost of each of a location's limits for this request. Returns the limits
/// that apply, in the order of the configuration: not those with an empty key or rate, nor shadow
/// limits with a malformed rate. No value: out of memory, or nginx could not evaluate a variable.
std::optional<std::span<AppliedLimit>> evaluate_limits(ngx_http_request_t* r, const LimitSet& set);

/// What the request really cost, by charge=. No value: the variable is empty, or malformed, which
/// is logged once in ten seconds.
std::optional<std::int64_t> evaluate_charge(ngx_http_request_t* r, const LimitConf& limit);

}  // namespace ratelimit::http
