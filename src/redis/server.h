#pragma once

#include "redis/address_cycle.h"
#include "redis/circuit_breaker.h"
#include "redis/connection.h"
#include "redis/reported_errors.h"
#include "redis/server_clock.h"
#include "redis/server_stats.h"
#include "redis/waiting_calls.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

class Server;

/// What happens to a call with an error reply.
enum class ErrorClass : std::uint8_t {
    refused,         // the call fails, and the error is counted and reported
    redirected,      // the client keeps the call, or has sent it to another server
    unreachable,     // the call fails: it belongs to another server, which cannot be reached
    slot_migrating,  // the call ends (Fate::one_by_one)
};

/// The events that a server reports to its client: changes of state, and errors of calls. Called
/// from the loop. The server must not be destroyed meanwhile.
class ServerOwner {
public:
    virtual ~ServerOwner() = default;
    virtual void server_up(Server&) noexcept {}
    virtual void server_down(Server& server, std::string_view reason) noexcept = 0;
    /// Called once for errors of one kind (the first word), until ten seconds have passed without
    /// any.
    virtual void error_reply(Server& server, std::string_view text) noexcept = 0;
    /// Called for each error reply to a call; `call` is null if no caller waits.
    virtual ErrorClass classify_error(Server&, Call*, std::string_view /*error*/) noexcept
    {
        return ErrorClass::refused;
    }
    /// A call cannot be sent by this server. True: the owner has accepted it.
    virtual bool reroute(Call&) noexcept { return false; }
    /// A connection was lost and has been made again: the server may have been restarted or
    /// replaced, and may have lost its counts.
    virtual void server_reconnected(Server&) noexcept {}
};

/// One Redis server, with `connections` pipelined connections. If it has a name, and the loop looks
/// up names, it follows changes of the address. A script is loaded when Redis does not have it. A
/// lost connection is made again at once, then with backoff (50 ms to 500 ms, with jitter). Those
/// calls in flight that are repeatable are sent again once.
class Server final : public ConnectionOwner {
public:
    /// `options` and `scripts` must outlive this object.
    Server(
        EventLoop& loop, Endpoint endpoint, const ServerOptions& options,
        const ScriptRegistry& scripts, ServerOwner& owner);
    ~Server() override { close(); }

    /// Connects; also after close().
    void start();

    /// A cluster announces this address for the server's name; empty: it announces none, and
    /// an earlier one stays.
    void announced_at(const std::string& address);

    /// Sends the call, or keeps it until a connection that is being made is ready. No call waits
    /// longer than connect_timeout + timeout, nor beyond its `expires`. False: the circuit breaker
    /// is open, or there is no connection and none is being made (the next attempt is later). The
    /// call was not accepted, and none of its functions is called.
    bool send(Call& call) { return accept(call, call.sent_before); }

    /// Writes at once all that waits for the end of the loop's turn.
    void flush() noexcept
    {
        for (const auto& connection : connections_) {
            connection->flush();
        }
    }

    /// Ends all pending calls (Fate::unsent or lost) and closes all connections.
    void close() noexcept;
    /// Another server has taken this one's place: calls that this one still executes do not count
    /// there.
    void replaced() noexcept
    {
        for (const auto& connection : connections_) {
            connection->forget_silent();
        }
    }

    /// The address in it changes if the name gets another one.
    const Endpoint& endpoint() const noexcept { return endpoint_; }
    /// Whether the circuit breaker is open: the server did not reply, and is only probed.
    bool refuses() const noexcept { return breaker_.open(); }
    /// Call once a second: probes the server if it was silent for a second.
    void probe();

    /// Known when a connection has been ready: that sends TIME before its first call.
    ServerClock& clock() noexcept { return clock_; }

    /// Whether the server is known to reply, possibly with errors.
    bool up() const noexcept { return state_ == State::up; }
    /// Whether the server is reported down.
    bool away() const noexcept { return state_ >= State::away; }
    /// The counters since this function was last called.
    ServerStats take_stats() noexcept { return std::exchange(stats_, {}); }
    /// Whether no call is in flight or waits for a connection.
    bool idle() const noexcept;
    /// Whether a connection is ready.
    bool ready() const noexcept { return any(&Connection::ready); }

    bool address_failed(
        const Connection& connection, std::string_view reason, Loss loss) noexcept override;
    void connection_ready(Connection& connection) override;
    void connection_lost(
        Connection& connection, std::string_view reason, Loss loss, bool elsewhere) override;
    bool send_again(Call& call, bool had_left) noexcept override;
    void call_refused(Call* call, std::string_view error) noexcept override;
    void call_timed_out(unsigned checks, milliseconds sent) noexcept override;
    void command_answered(bool probe, std::optional<microseconds> took) noexcept override;
    void replied_late() noexcept override { breaker_.answered(); }
    void command_sent() noexcept override { ++stats_.calls; }

private:
    enum class State : std::uint8_t {
        starting,  // not connected yet
        up,
        away,      // reported as down
        refusing,  // reported as down because it refused calls: up only after a reply to a call
    };

    /// Asks for the time, as scripts do, so that no other right is needed.
    class Probe final : public CommandCall {
    public:
        explicit Probe(const std::string& key) : CommandCall(time_command(key))
        {
            delays_exit = false;
        }
        unsigned request_count() const noexcept override { return 0; }
        bool on_reply(const redisReply& reply) noexcept override
        {
            return routing.exchange.read(reply);
        }
        void ended(Fate) noexcept override {}
    };

    static constexpr milliseconds look_up_pause{ 1000 };
    static constexpr milliseconds most_silence{ 1000 };
    static constexpr milliseconds probe_pause{ 100 };

    bool accept(Call& call, bool again);
    Connection* next_connection() noexcept;
    bool reconnecting() const noexcept { return any(&Connection::connecting); }
    bool connecting() const noexcept { return looks_up_first() || reconnecting(); }
    /// A look-up is in flight, and no server has answered yet: an address that is known already may
    /// be outdated.
    bool looks_up_first() const noexcept
    {
        return state_ == State::starting && lookup_ != nullptr && !look_up_alarm_.running();
    }
    bool waits_for_address() const noexcept { return looks_up_first() && endpoint_.host.empty(); }
    bool send_on(Connection& connection, Call& call);
    void send_probe() noexcept;
    void probe_silent() noexcept;
    void waited_in_vain(unsigned checks) noexcept;
    /// Whether a server announced the name, and the server is away, has no address, or uses another
    /// one than the announced one.
    bool follows_name() const noexcept
    {
        return addresses_.announced()
            && (endpoint_.host.empty() || away() || addresses_.uses_another());
    }
    void look_up() noexcept;
    void looked_up(const Addresses& addresses) noexcept;
    void connect();
    void note_error(std::string_view error, unsigned checks) noexcept;
    void note_silence(milliseconds began, std::string_view reason) noexcept;
    void report_up(bool answered) noexcept;
    void report_down(std::string_view reason, State state = State::away) noexcept;
    template <class Predicate>
    bool any(const Predicate& predicate) const
    {
        return std::ranges::any_of(connections_, [&](const auto& connection) {
            return std::invoke(predicate, *connection);
        });
    }

    EventLoop& loop_;
    Endpoint endpoint_;
    AddressCycle addresses_;
    const ServerOptions& options_;
    ServerOwner& owner_;
    CircuitBreaker breaker_;
    // Its late replies close the breaker, so timeouts in a row are counted separately: a server
    // that is always too slow has to be reported too.
    CircuitBreaker lateness_;
    ServerClock clock_;
    std::vector<std::unique_ptr<Connection>> connections_;
    Connection* filling_ = nullptr;  // the connection of the last call
    WaitingCalls waiting_;
    Alarm look_up_alarm_;  // until the name is looked up again
    std::unique_ptr<Lookup> lookup_;
    ServerStats stats_;
    Probe probe_{ options_.clock_key };
    bool lost_ = false;                   // since a connection was ready last, one was lost
    std::unique_ptr<Timer> probe_timer_;  // while the breaker is open
    State state_ = State::starting;
    milliseconds started_{ 0 };  // when start() was called
    ReportedErrors errors_;
};

}  // namespace ratelimit::redis
