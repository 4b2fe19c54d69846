#pragma once

#include "http/conf.h"

namespace ratelimit::http {

class RequestState;

/// Logs what a decision starts or ends: a key that starts being refused or delayed, and, when it
/// is let in again, how often it was. Never a line for each request. Only the line that a key
/// starts being refused has the request's client: all others may concern other clients.
void log_decision(const RequestState& state) noexcept;

/// Logs the runs that ended with nobody asking: called now and then by each worker.
void log_ended(MainConf& conf) noexcept;

}  // namespace ratelimit::http
