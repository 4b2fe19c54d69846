#pragma once

#include "redis/server.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

enum class Topology : std::uint8_t {
    ring,      // each key on one of the servers, by consistent hashing; one server: that one
    cluster,   // Redis Cluster, of which the servers are some
    sentinel,  // the master that the servers, Redis Sentinels, name
};

struct Member {
    Endpoint endpoint;
    int weight = 1;  // of a ring
};

struct ClientOptions {
    Topology topology = Topology::ring;
    std::vector<Member> servers;  // at least one
    ServerOptions server;
    std::string master;             // as the sentinels call it
    std::string sentinel_username;  // as username and password, for the sentinels
    std::string sentinel_password;
};

std::vector<Endpoint> endpoints_of(const ClientOptions& options);

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
    /// The server of this number (Client::server_of) may have lost what it had counted: a
    /// connection to it had to be made again, or another server has its keys now.
    virtual void counts_may_be_lost(std::uint32_t server) noexcept = 0;
    /// Cluster and sentinel: where the keys are has been learnt, or is another place than before.
    virtual void servers_known(std::string_view text) noexcept = 0;
    /// No server says where the keys are; once until the next servers_known.
    virtual void servers_unknown(std::string_view reason) noexcept = 0;
};

/// One of a client's servers, as it stands.
struct ServerView {
    const Endpoint& endpoint;
    bool up;
    bool breaker_open;
    ServerStats stats;  // since it was last looked at
};

/// What a client is made of. What is referred to must outlive it.
struct ClientParts {
    EventLoop& loop;
    ClientOptions options;
    const ScriptRegistry& scripts;
    ClientEvents& events;
};

/// Calls Redis, on one event loop, in one thread: brings each call to the server that has its keys,
/// and follows them when they move. There is one kind for each topology (make_client). What its
/// servers tell goes on to the client's owner, and an error reply is the server's failure, unless a
/// kind knows better.
class Client : public ServerOwner {
public:
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void start();

    /// Sends the call, or keeps it until its server is found and connected; no call waits longer
    /// than connect_timeout + timeout, wherever it is sent on to. False: its server's circuit
    /// breaker is open, or there is no connection to it and none being made now (it is waiting to
    /// try again); the call was not taken and hears nothing.
    bool send(Call& call);

    /// Fails the pending calls with Failure::connection and closes every connection, as the
    /// destructor of each kind does.
    void close() noexcept;

    /// Closes every connection, if nothing is in flight; the next call connects again.
    void rest();

    /// Whether the circuit breaker of the server of this shard is open. A call may still be the
    /// trial that goes now and then.
    virtual bool refuses(std::uint32_t shard) const noexcept = 0;

    std::unique_ptr<Timer> make_timer(std::function<void()> fired)
    {
        return loop_.make_timer(std::move(fired));
    }

    /// The loop's time, and how long a call may take in the end, or where a connection is ready.
    milliseconds now() const noexcept { return loop_.now(); }
    milliseconds longest_wait() const noexcept
    {
        return options_.server.connect_timeout + options_.server.timeout;
    }
    milliseconds usual_wait() const noexcept { return options_.server.timeout; }

    /// Keys of one shard can go in one call: the server of a ring, the hash slot of a cluster.
    virtual std::uint32_t shard_of(std::string_view key) const noexcept = 0;

    /// A number of the shard's server, the same in each worker. Two servers of a cluster may have
    /// the same number.
    virtual std::uint32_t server_of(std::uint32_t shard) const noexcept { return shard; }

    /// Shows every server that keys are on, as far as they are known, with its counts since the
    /// last time, and probes those that have been silent.
    void look_at_servers(const std::function<void(const ServerView&)>& look);

    void server_up(Server& server) noexcept override { events_.server_up(server.endpoint()); }
    void server_down(Server& server, std::string_view reason) noexcept override
    {
        events_.server_down(server.endpoint(), reason);
    }
    void error_reply(Server& server, std::string_view text) noexcept override
    {
        events_.error_reply(server.endpoint(), text);
    }
    bool take_back(Server& server, Call& call) noexcept override;

protected:
    explicit Client(ClientParts parts)
        : loop_(parts.loop),
          options_(std::move(parts.options)),
          scripts_(parts.scripts),
          events_(parts.events)
    {
    }

    /// Connects; also after disconnect().
    virtual void connect() = 0;
    virtual void disconnect() noexcept = 0;
    /// Sends a call that has its `routing`, also again.
    virtual bool route(Call& call) = 0;
    virtual void each_server(const std::function<void(Server&)>& visit) = 0;

    EventLoop& loop_;
    const ClientOptions options_;
    const ScriptRegistry& scripts_;
    ClientEvents& events_;

    bool open() const noexcept { return state_ == State::open; }

private:
    enum class State : std::uint8_t { resting, open, closed };

    State state_ = State::resting;
};

}  // namespace ratelimit::redis
