#pragma once

#include "http/request_state.h"

namespace ratelimit::http {

enum class Checks : std::uint8_t {
    ready,            // `state` is made, and can be asked
    nothing_limited,  // every key or rate was empty: no state
    failed,           // out of memory, or nginx could not evaluate a variable
};

/// Evaluates keys, rates and costs of a location's limits for this request.
Checks make_checks(ngx_http_request_t* r, const LimitSet& set, RequestState*& state);

}  // namespace ratelimit::http
