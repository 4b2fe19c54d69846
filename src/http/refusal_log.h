#pragma once

#include "conf/conf.h"

namespace ratelimit::http {

class RequestState;

/// Logs a key when it starts being refused or delayed, and the number of these requests when it is
/// next let in; not a line for each request. Only the first line contains the client: the others
/// may concern requests of other clients.
void log_decision(const RequestState& state) noexcept;

/// Logs the runs that ended without a further request. Each worker calls it once a second.
void log_ended(MainConf& conf) noexcept;

}  // namespace ratelimit::http
