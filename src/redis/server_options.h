#pragma once

#include "loop/event_loop.h"
#include "redis/endpoint.h"
#include "redis/tls.h"

#include <memory>
#include <string>

namespace ratelimit::redis {

/// How servers are connected to and given up on: all of a client's servers alike.
struct ServerOptions {
    std::string username;  // empty: the default user
    std::string password;  // empty: no AUTH
    int database = 0;
    std::shared_ptr<const TlsContext> tls;  // null: no TLS
    int connections = 1;                    // to each server
    milliseconds connect_timeout{ 250 };
    milliseconds timeout{ 100 };  // of one call, from send to reply
    int breaker_failures = 5;     // silences in a row that open the circuit breaker
    // A connection that says nothing for so much longer than `timeout` is made again.
    milliseconds breaker_open{ 1000 };
    std::size_t longest_batch = 16;  // calls that go together, at most
    bool master_only = false;        // a replica (ROLE) is left
};

}  // namespace ratelimit::redis
