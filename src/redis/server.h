#pragma once

#include "redis/address_cycle.h"
#include "redis/circuit_breaker.h"
#include "redis/connection.h"
#include "redis/server_stats.h"
#include "redis/waiting_calls.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ratelimit::redis {

class Server;

/// What a server tells the client that has it: transitions, and errors of calls. Called from the
/// loop; the server must outlive the call.
class ServerOwner {
public:
    virtual ~ServerOwner() = default;
    virtual void server_up(Server& server) noexcept = 0;
    virtual void server_down(Server& server, std::string_view reason) noexcept = 0;
    /// Once for errors of one kind (the first word), until ten seconds have passed without any.
    virtual void error_reply(Server& server, std::string_view text) noexcept = 0;
    /// Each error that a call is answered with; `call` is null when nobody waits for it any more.
    virtual ErrorFate fate_of(Server& server, Call* call, std::string_view error) noexcept = 0;
    /// The call waited for a connection, which could not be made. True: the owner has it now.
    virtual bool take_back(Server& server, Call& call) noexcept = 0;
    /// A connection was lost and has been made again: the server may have restarted, or be another
    /// one, and have lost what it had counted.
    virtual void server_reconnected(Server& server) noexcept = 0;
};

/// One Redis server, through `connections` pipelined connections. Follows its name, if it has one
/// and the loop looks names up, to other addresses. Connects at start(), loads every
/// script before the first call, reconnects with backoff (50 ms to 2 s, with jitter), loads the
/// scripts again when Redis answers NOSCRIPT and sends the calls that met it again.
class Server final : public ConnectionOwner {
public:
    /// `options` and `scripts` must outlive it.
    Server(
        EventLoop& loop, Endpoint endpoint, const ServerOptions& options,
        const ScriptRegistry& scripts, ServerOwner& owner);
    ~Server() override;

    void start();

    /// A cluster's map says that its name stands for this address. Our own look-up of the name
    /// counts more, unless it failed.
    void announced_at(const std::string& address);

    /// Sends the call, or keeps it until the connection that is being made is ready; no call waits
    /// longer than connect_timeout + timeout, nor beyond its `expires`. False: the circuit breaker
    /// is open, or there is no connection and none being made now (it is waiting to try again); the
    /// call was not taken and hears nothing.
    bool send(Call& call);

    /// Fails what is on its way with Failure::connection and closes every connection.
    void close() noexcept;

    /// Where it is; its address changes when its name is found to stand for another.
    const Endpoint& endpoint() const noexcept { return endpoint_; }
    /// Its circuit breaker is open; the trial that goes now and then is up to send.
    bool refuses() const noexcept { return breaker_.open(); }
    /// To be called each second: asks whether the server answers, so that this is known without a
    /// call, where the circuit breaker is open and its pause is over, or nothing was heard of it
    /// for five seconds.
    void probe();

    /// It answers, as far as is known.
    bool up() const noexcept { return up_; }
    /// It was reported down, and has not answered since.
    bool away() const noexcept { return down_reported_; }
    /// What has been counted since this was last called.
    ServerStats take_stats() noexcept { return std::exchange(stats_, {}); }
    /// Nothing is in flight, and no call waits for a connection.
    bool idle() const noexcept;
    /// Whether a call would leave at once.
    bool ready() const noexcept;

    ErrorFate fate_of(Call* call, std::string_view error) noexcept override;
    bool address_failed(std::string_view address) override { return addresses_.failed(address); }
    void connection_ready(Connection& connection) override;
    void connection_lost(Connection& connection, std::string_view reason, bool refused) override;
    void call_refused(std::string_view error, unsigned checks) noexcept override;
    void call_timed_out(unsigned checks) noexcept override;
    void call_answered(std::chrono::steady_clock::duration took) noexcept override;
    void command_sent() noexcept override { ++stats_.calls; }

private:
    /// TIME, for which scripts need the right already.
    class Probe final : public CommandCall {
    public:
        Probe() : CommandCall(plain_command({ "TIME" })) {}
        bool delays_exit() const noexcept override { return false; }
        void on_reply(const redisReply&) noexcept override {}
        void on_failure(Failure) noexcept override {}
    };

    static constexpr std::size_t most_told_errors = 16;
    static constexpr milliseconds error_pause{ 10'000 };
    static constexpr milliseconds look_up_pause{ 1000 };
    static constexpr milliseconds most_silence{ 5000 };

    bool send_on(Connection& connection, Call& call);
    void connect();
    void look_up_soon() noexcept;
    void look_up() noexcept;
    void looked_up(const Addresses& addresses) noexcept;
    void reconnect();
    void note_failure(std::string_view reason, unsigned checks = 1) noexcept;
    void report_up() noexcept;
    void report_down(std::string_view reason) noexcept;
    template <class Predicate>
    bool any(Predicate&& predicate) const;

    EventLoop& loop_;
    Endpoint endpoint_;
    AddressCycle addresses_;
    const ServerOptions& options_;
    ServerOwner& owner_;
    CircuitBreaker breaker_;
    RecordPool records_;  // before the connections, which give their records back
    std::vector<std::unique_ptr<Connection>> connections_;
    WaitingCalls waiting_;
    std::unique_ptr<Timer> look_up_timer_;  // until the name is looked up again
    std::unique_ptr<Lookup> lookup_;
    ServerStats stats_;
    Probe probe_;
    bool finding_ = false;  // its first address is being looked up
    bool lost_ = false;     // a connection was lost, or not made, since one was made
    bool found_ = false;    // the last look-up of its name found addresses
    bool up_ = false;
    bool refuses_checks_ = false;  // its last failure was an error reply
    bool down_reported_ = false;
    bool refusing_ = false;                 // it refused calls: up only when it has answered one
    std::vector<std::string> told_errors_;  // first words of the errors of this run
    milliseconds last_error_at_{ 0 };
};

}  // namespace ratelimit::redis
