#pragma once

#include "loop/event_loop.h"
#include "redis/call.h"
#include "redis/script_registry.h"
#include "redis/tls.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// host and port, or the path of a unix socket. `host` is a numeric IPv4 or IPv6 address (without
/// brackets) or a name.
struct Endpoint {
    std::string host;
    std::uint16_t port = 6379;
    std::string unix_path;  // not empty: a unix socket
    std::string name;       // as configured, for logs
};

struct ClientOptions {
    Endpoint server;
    std::string username;  // empty: the default user
    std::string password;  // empty: no AUTH
    int database = 0;
    std::shared_ptr<const TlsContext> tls;  // null: no TLS
    int connections = 1;                    // to the server
    milliseconds connect_timeout{ 250 };
    milliseconds timeout{ 100 };  // of one call, from send to reply
    int breaker_failures = 5;     // in a row that open the circuit breaker
    milliseconds breaker_open{ 1000 };
};

/// What a client tells its owner: transitions, not calls. Called from the loop.
class ClientEvents {
public:
    virtual ~ClientEvents() = default;
    virtual void server_up(const Endpoint& server) noexcept = 0;
    /// After start without a connection, or when the last usable connection is lost; once until
    /// the next server_up. `reason` is one line: what connect, AUTH, SELECT, SCRIPT LOAD or the
    /// lost connection said.
    virtual void server_down(const Endpoint& server, std::string_view reason) noexcept = 0;
    /// Redis answered a call with an error. Once for errors of one kind (the first word), until ten
    /// seconds have passed without any.
    virtual void error_reply(const Endpoint& server, std::string_view text) noexcept = 0;
};

/// Calls scripts on one Redis server through `connections` pipelined connections, on one event
/// loop, in one thread. Connects at start(), loads every script before the first call, reconnects
/// with backoff (50 ms to 2 s, with jitter), loads the scripts again when Redis answers NOSCRIPT
/// and sends the calls that met it again.
class Client {
public:
    Client(
        EventLoop& loop, ClientOptions options, const ScriptRegistry& scripts,
        ClientEvents& events);
    ~Client();  // as close()
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void start();

    /// Sends the call, or keeps it until the connection that is being made is ready; no call waits
    /// longer than connect_timeout + timeout. False: the circuit breaker is open, or there is no
    /// connection and none being made now (it is waiting to try again); the call was not taken and
    /// hears nothing.
    bool send(Call& call);

    /// Fails what is on its way with Failure::connection and closes every connection.
    void close() noexcept;

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace ratelimit::redis
