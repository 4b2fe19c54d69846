#pragma once

#include "redis/outbox.h"
#include "redis/server.h"
#include "redis/takeover_window.h"
#include "redis/unsettled.h"
#include "redis/waiting_calls.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

enum class Topology : std::uint8_t {
    ring,      // each key is on one of the servers, by consistent hashing; also a single server
    cluster,   // Redis Cluster; the servers are some of its nodes
    sentinel,  // one master, which the servers, Redis Sentinels, name
};

struct Member {
    Endpoint endpoint;
    int weight = 1;  // for a ring
};

struct ClientOptions {
    Topology topology = Topology::ring;
    std::vector<Member> servers;  // at least one
    ServerOptions server;
    std::size_t most_masters = 1000;  // of a cluster: a map with more is refused
    std::string master;               // its name in the sentinels' configuration
    std::string sentinel_username;    // for AUTH to the sentinels
    Password sentinel_password;
};

std::vector<Endpoint> endpoints_of(const ClientOptions& options);

/// The events that a client reports to its owner: changes of state, not calls. Called from the
/// loop. By default none is noted.
class ClientEvents {
public:
    virtual ~ClientEvents() = default;
    virtual void server_up(const Endpoint& /*server*/) noexcept {}
    /// The server cannot be connected to, or the last usable connection was lost. Called once until
    /// the next server_up. `reason` is one line: the error of connect, AUTH, SELECT, EVAL or the
    /// lost connection.
    virtual void server_down(const Endpoint& /*server*/, std::string_view /*reason*/) noexcept {}
    /// Redis replied to a call with an error. Called once for errors of one kind (the first word),
    /// until ten seconds have passed without any.
    virtual void error_reply(const Endpoint& /*server*/, std::string_view /*text*/) noexcept {}
    /// The server with this number (Client::server_of) may have lost its counts: a connection was
    /// made again, or another server has its keys now.
    virtual void counts_may_be_lost(std::uint32_t /*server*/) noexcept {}
    /// Cluster and sentinel: it has become known which servers have the keys, or they have changed.
    virtual void servers_known(std::string_view /*text*/) noexcept {}
    /// Cluster and sentinel: no server tells which ones have the keys. Called once until the next
    /// servers_known.
    virtual void servers_unknown(std::string_view /*reason*/) noexcept {}
};

/// The parameters of a client. The referenced objects must outlive it.
struct ClientParts {
    EventLoop& loop;
    ClientOptions options;
    const ScriptRegistry& scripts;
    ClientEvents& events;
};

/// Calls Redis on one event loop, in one thread. Sends each call to the server that has its keys,
/// and follows keys that move. There is a derived class for each topology (make_client). The
/// events of servers that have not been replaced are reported to the client's owner.
class Client : public ServerOwner, public OutboxOwner {
public:
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void start();

    /// Sends the call, or keeps it until its server is known and connected. No call waits longer
    /// than connect_timeout + timeout, including redirections. False: the circuit breaker of its
    /// server is open, or there is no connection and none is being made (the next attempt is
    /// later), or there is no memory. The call was not accepted, and none of its functions is
    /// called.
    bool send(Call& call) noexcept final;

    /// Writes at once all that waits for the end of the loop's turn: the loop does not run any
    /// longer.
    void flush() noexcept
    {
        each_server([](Server& server) { server.flush(); });
    }

    /// Ends the pending calls (Fate::unsent or lost) and closes all connections. Destructors do
    /// the same.
    void close() noexcept;

    /// Whether no call is in flight or waits, and no late reply is awaited.
    bool idle();

    /// Closes all connections if it is idle, owes nothing, and no key is unsettled. The next call
    /// connects again.
    void rest();
    /// The process leaves: see UnsettledKeys. Call it at least once a second then.
    void leave() noexcept { unsettled_.leave(); }

    /// Whether the circuit breaker of this shard's server is open, and no takeover is expected.
    virtual bool refuses(std::uint32_t shard) const noexcept
    {
        const Server* server = server_at(shard);
        return server != nullptr && server->refuses() && !may_be_taken_over(*server);
    }

    EventLoop& loop() noexcept { return loop_; }

    /// The keys, or keys of blocks, whose count in Redis may differ from what requests used.
    UnsettledKeys& unsettled() noexcept { return unsettled_; }

    Outbox& outbox() noexcept { return outbox_; }

    /// To be called for a call that failed and whose result no caller waits for.
    void count_failed() noexcept { ++failed_; }
    /// How many such calls there were since the last call of this function.
    std::uint64_t take_failed() noexcept { return std::exchange(failed_, 0); }

    /// The loop's time.
    milliseconds now() const noexcept { return loop_.now(); }
    /// The longest time that a call can take.
    milliseconds longest_wait() const noexcept
    {
        return options_.server.connect_timeout + options_.server.timeout;
    }
    /// The longest time that a call can take if a connection is ready.
    milliseconds usual_wait() const noexcept { return options_.server.timeout; }

    /// Of this shard's server. Null: it is not known which that is.
    virtual ServerClock* clock_of(std::uint32_t shard) const noexcept
    {
        Server* server = server_at(shard);
        return server == nullptr ? nullptr : &server->clock();
    }
    /// What that clock shows at this time of the steady clock, since the epoch. Empty: not known
    /// yet.
    std::optional<microseconds> server_time(
        std::uint32_t shard, microseconds at = ServerClock::steady_now()) const noexcept
    {
        const ServerClock* clock = clock_of(shard);
        return clock == nullptr ? std::nullopt : clock->at(at);
    }

    /// The server of a ring, or the hash slot of a cluster. Keys of one shard can be in one call.
    virtual std::uint32_t shard_of(std::string_view key) const noexcept = 0;

    std::uint32_t server_of(std::uint32_t shard) const noexcept override
    {
        const Server* server = server_at(shard);
        return server == nullptr ? 0 : number_of(*server).value_or(0);
    }

    /// Probes the servers that have been silent for a second.
    void probe()
    {
        each_server([](Server& server) { server.probe(); });
    }
    /// Calls `visit` with each known server.
    virtual void each_server(const std::function<void(Server&)>& visit) = 0;

    void server_up(Server& server) noexcept final
    {
        if (number_of(server)) {
            outbox_.server_up();
            events_.server_up(server.endpoint());
            server_changed(true);
        }
    }
    void server_down(Server& server, std::string_view reason) noexcept final
    {
        if (number_of(server)) {
            events_.server_down(server.endpoint(), reason);
            server_changed(false);
        }
    }
    void server_reconnected(Server& server) noexcept final
    {
        if (const auto number = number_of(server)) {
            counts_may_be_lost(*number);
        }
    }
    void error_reply(Server& server, std::string_view text) noexcept override
    {
        events_.error_reply(server.endpoint(), text);
    }
    bool reroute(Call& call) noexcept override;

protected:
    explicit Client(ClientParts parts)
        : loop_(parts.loop),
          options_(std::move(parts.options)),
          scripts_(parts.scripts),
          events_(parts.events),
          waiting_(loop_, [](unsigned) {}),
          unsettled_(loop_),
          outbox_(loop_, *this, unsettled_)
    {
    }

    /// The servers have been started, also after disconnect().
    virtual void connect() {}
    /// The servers are closed then.
    virtual void disconnect() noexcept {}
    /// The shard's server. Null: it is not known.
    virtual Server* server_at(std::uint32_t shard) const noexcept = 0;
    virtual bool may_be_taken_over(const Server& /*server*/) const noexcept { return false; }
    /// What server_of returns for the shards of this server. Empty: it has been replaced.
    virtual std::optional<std::uint32_t> number_of(const Server& server) const noexcept = 0;
    /// One that has not been replaced is up or down.
    virtual void server_changed(bool /*up*/) noexcept {}
    /// Sends a call whose `routing` is set. False: see send.
    virtual bool route(Call& call) = 0;

    EventLoop& loop_;
    const ClientOptions options_;
    const ScriptRegistry& scripts_;
    ClientEvents& events_;

    WaitingCalls waiting_;   // for the first map or master, or a takeover
    ReportedErrors errors_;  // that takeovers cause

    bool open() const noexcept { return state_ == State::open; }
    /// Keeps the call until another server has taken over or its timeout has passed. False: no
    /// takeover is expected.
    bool wait(Call& call, TakeoverWindow& takeover) noexcept;
    /// Sends them again.
    void retry_waiting()
    {
        waiting_.release([this](Call& call) { return route(call); });
    }
    /// Whether it was ever known which servers have the keys. Until then calls wait for that.
    bool known() const noexcept { return !known_servers_.empty(); }
    /// See ClientEvents.
    void servers_known(std::string text)
    {
        if (std::exchange(unknown_reported_, false) || text != known_servers_) {
            known_servers_ = std::move(text);
            events_.servers_known(known_servers_);
        }
    }
    void servers_unknown(std::string_view reason) noexcept
    {
        if (!known()) {
            waiting_.end_all();
        }
        if (!std::exchange(unknown_reported_, true)) {
            events_.servers_unknown(reason);
        }
    }

    /// See ClientEvents::counts_may_be_lost.
    void counts_may_be_lost(std::uint32_t server) noexcept
    {
        outbox_.restart(server);
        events_.counts_may_be_lost(server);
    }

private:
    enum class State : std::uint8_t { resting, open, closed };

    State state_ = State::resting;
    std::string known_servers_;      // the latest text
    bool unknown_reported_ = false;  // since then
    std::uint64_t failed_ = 0;
    UnsettledKeys unsettled_;
    Outbox outbox_;
};

inline Client& Owed::client() const noexcept
{
    return static_cast<Client&>(outbox_->client_);
}

}  // namespace ratelimit::redis
