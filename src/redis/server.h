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

/// What becomes of a call that was answered with an error.
enum class ErrorClass : std::uint8_t {
    refused,         // it fails, and so did its server
    redirected,      // another server has it now
    unreachable,     // it fails: it belongs to another server, which cannot be reached
    slot_migrating,  // it fails with Failure::slot_migrating
};

/// What a server tells the client that has it: transitions, and errors of calls. Called from the
/// loop; the server must outlive the call.
class ServerOwner {
public:
    virtual ~ServerOwner() = default;
    virtual void server_up(Server&) noexcept {}
    virtual void server_down(Server& server, std::string_view reason) noexcept = 0;
    /// Once for errors of one kind (the first word), until ten seconds have passed without any.
    virtual void error_reply(Server& server, std::string_view text) noexcept = 0;
    /// Each error that a call is answered with; `call` is null when no caller waits.
    virtual ErrorClass classify_error(Server&, Call*, std::string_view /*error*/) noexcept
    {
        return ErrorClass::refused;
    }
    /// The call waited for a connection, which could not be made. True: the owner has it now.
    virtual bool take_back(Server&, Call&) noexcept { return false; }
    /// A connection was lost and has been made again: the server may have restarted, or be another
    /// one, and have lost what it had counted.
    virtual void server_reconnected(Server&) noexcept {}
};

/// One Redis server, through `connections` pipelined connections. Follows its name, if it has one
/// and the loop looks names up, to other addresses. Connects at start(), loads every script before
/// the first call, and again when Redis answers NOSCRIPT. A connection that is lost is made again
/// at once, then with backoff (50 ms to 500 ms, with jitter); what was in flight is sent again,
/// once.
class Server final : public ConnectionOwner {
public:
    /// `options` and `scripts` must outlive it.
    Server(
        EventLoop& loop, Endpoint endpoint, const ServerOptions& options,
        const ScriptRegistry& scripts, ServerOwner& owner);
    ~Server() override;

    /// Connects; also after close().
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
    /// Its circuit breaker is open: it did not answer, and is only probed.
    bool refuses() const noexcept { return breaker_.open(); }
    /// To be called each second: probes a server that was silent for five seconds.
    void probe();

    /// It answers, as far as is known; maybe with errors.
    bool up() const noexcept { return state_ == State::up; }
    /// It was reported down, and has not answered since.
    bool away() const noexcept { return state_ == State::away || state_ == State::refusing; }
    /// What has been counted since this was last called.
    ServerStats take_stats() noexcept { return std::exchange(stats_, {}); }
    /// Nothing is in flight, and no call waits for a connection.
    bool idle() const noexcept;
    /// Whether a call would leave at once.
    bool ready() const noexcept;

    bool address_failed(std::string_view address) noexcept override;
    void connection_ready(Connection& connection) override;
    void connection_lost(Connection& connection, std::string_view reason, Loss loss) override;
    bool send_again(Call& call, milliseconds deadline) noexcept override;
    void call_refused(Call* call, std::string_view error) noexcept override;
    void reply_malformed(Call& call) noexcept override;
    void call_timed_out(unsigned checks, milliseconds sent) noexcept override;
    void command_answered() noexcept override;
    void call_answered(std::chrono::steady_clock::duration took) noexcept override;
    void command_sent() noexcept override { ++stats_.calls; }

private:
    enum class State : std::uint8_t {
        starting,  // not connected yet
        up,
        away,      // reported as down
        refusing,  // so, since it refused calls: up only when it has answered one
    };

    enum class Name : std::uint8_t {
        unresolved,     // it is not looked up, or its last look-up found nothing
        first_look_up,  // in flight: the address that nginx.conf's name had may be dead
        resolved,
    };

    /// TIME, for which scripts need the right already.
    class Probe final : public CommandCall {
    public:
        Probe() : CommandCall(plain_command({ "TIME" })) { delays_exit = false; }
        unsigned request_count() const noexcept override { return 0; }
        bool on_reply(const redisReply&) noexcept override { return true; }
        void on_failure(Failure) noexcept override {}
    };

    static constexpr std::size_t most_reported_errors = 16;
    static constexpr milliseconds error_pause{ 10'000 };
    static constexpr milliseconds look_up_pause{ 1000 };
    static constexpr milliseconds most_silence{ 5000 };
    static constexpr milliseconds probe_pause{ 100 };

    Connection* next_connection() noexcept;
    bool connecting() const noexcept;
    /// No address is known before the first look-up has ended.
    bool waits_for_address() const noexcept
    {
        return name_ == Name::first_look_up && endpoint_.host.empty();
    }
    bool send_on(Connection& connection, Call& call);
    void send_probe() noexcept;
    void probe_silent() noexcept;
    void connect();
    void look_up_soon() noexcept;
    void look_up() noexcept;
    void looked_up(const Addresses& addresses) noexcept;
    void reconnect();
    void note_error(std::string_view error, unsigned checks) noexcept;
    void note_silence(milliseconds began, std::string_view reason) noexcept;
    void report_up() noexcept;
    void report_down(std::string_view reason, State state = State::away) noexcept;
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
    Connection* filling_ = nullptr;  // the one that the last call was sent on
    WaitingCalls waiting_;
    Alarm look_up_alarm_;  // until the name is looked up again
    std::unique_ptr<Lookup> lookup_;
    Name name_ = Name::unresolved;
    ServerStats stats_;
    Probe probe_;
    bool lost_ = false;                   // a connection was lost, or not made, since one was made
    std::unique_ptr<Timer> probe_timer_;  // while the breaker is open
    State state_ = State::starting;
    std::vector<std::string> reported_errors_;  // first words of the errors of this run
    milliseconds last_error_at_{ 0 };
};

}  // namespace ratelimit::redis
