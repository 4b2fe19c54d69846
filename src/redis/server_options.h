#pragma once

#include "loop/event_loop.h"
#include "redis/endpoint.h"
#include "redis/password.h"
#include "redis/tls.h"

#include <memory>
#include <string>

namespace ratelimit::redis {

/// The options for connections to a client's servers.
struct ServerOptions {
    std::string username;  // empty: the default user
    Password password;     // empty: no AUTH
    int database = 0;
    std::shared_ptr<const TlsContext> tls;  // null: no TLS
    // Of a script that has none, for proxies that pass no command without a key; empty: none.
    std::string clock_key;
    int connections = 1;  // to each server
    milliseconds connect_timeout{ 250 };
    milliseconds timeout{ 100 };  // of one call, from send to reply
    int breaker_failures = 5;     // how many silences in a row open the circuit breaker
    // A connection without any reply for `timeout` plus this time is replaced (SilentPipelines).
    milliseconds breaker_open{ 1000 };
    bool master_only = false;  // disconnect from a replica (ROLE)
};

}  // namespace ratelimit::redis
