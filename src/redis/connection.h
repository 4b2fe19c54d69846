#pragma once

#include "loop/event_loop.h"
#include "redis/alarm.h"
#include "redis/backoff.h"
#include "redis/context.h"
#include "redis/handshake.h"
#include "redis/in_flight.h"

#include <string>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

class Connection;

/// What becomes of a call that was answered with an error.
enum class ErrorFate : std::uint8_t {
    refused,      // it fails, and so did its server
    redirected,   // another server has it now
    unreachable,  // it fails: it belongs to another server, which cannot be asked
    keys_apart,   // it fails with Failure::keys_apart
};

/// How a connection was lost.
enum class Loss : std::uint8_t {
    good,       // it had answered, and is made again at once
    elsewhere,  // it was of no use, and another address of the server's name is tried at once
    failed,     // it could not be made, or was closed
    starved,    // it could not be made, as this process has no room for it
    silent,     // no reply in time
    rejected,   // it was answered with an error while it was set up
    /// Its server lets itself be connected to, but answers no call, or each with an error that says
    /// that it is of no use.
    refused,
};

/// What a connection tells the server that has it.
class ConnectionOwner {
public:
    virtual ~ConnectionOwner() = default;
    /// `call` is null when nobody waits for it any more.
    virtual ErrorFate fate_of(Call* call, std::string_view error) noexcept = 0;
    virtual void connection_ready(Connection& connection) = 0;
    /// No connection could be made to this address, or its server is of no use. True: the server
    /// has another address, which is to be tried at once.
    virtual bool address_failed(std::string_view address) = 0;
    /// It will connect again. Called before the calls that were on it are sent again or fail.
    virtual void connection_lost(Connection& connection, std::string_view reason, Loss loss) = 0;
    /// Of a lost connection. False: it cannot be sent again before the deadline.
    virtual bool send_again(Call& call, milliseconds deadline) noexcept = 0;
    /// `checks`: Call::stands_for. By an error reply:
    virtual void call_refused(std::string_view error, unsigned checks) noexcept = 0;
    /// One of those whose command was `sent` then.
    virtual void call_timed_out(unsigned checks, milliseconds sent) noexcept = 0;
    /// A command, maybe of many calls.
    virtual void command_sent() noexcept = 0;
    /// Not with an error; maybe too late for those who waited.
    virtual void command_answered() noexcept = 0;
    /// In time; `took`: since its command was sent.
    virtual void call_answered(std::chrono::steady_clock::duration took) noexcept = 0;
};

/// One pipelined connection to one server. Connects, authenticates and loads the scripts before it
/// is ready. When it is lost, or its server turns out to be of no use, it connects again: at once
/// if it was good, else after a pause.
class Connection final : private ContextOwner {
public:
    Connection(
        EventLoop& loop, const Endpoint& server, const ServerOptions& options,
        const ScriptRegistry& scripts, RecordPool& records, ConnectionOwner& owner);
    ~Connection() override;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void connect();
    /// Its server is at another address now: connects there when the calls on their way have ended.
    void move();
    /// Fails what is on its way and stays closed.
    void close() noexcept;

    bool ready() const noexcept { return state_ == State::ready; }
    /// How often it has been ready.
    unsigned times_ready() const noexcept { return times_ready_; }
    /// Calls that wait for it may be sent soon.
    bool connecting() const noexcept
    {
        return state_ == State::connecting || state_ == State::returning || state_ == State::moving;
    }
    /// When it was answered last, by the loop's clock.
    milliseconds last_reply() const noexcept { return in_flight_.last_reply(); }
    /// When it began to connect.
    milliseconds attempted() const noexcept { return attempted_; }
    std::size_t in_flight() const noexcept { return in_flight_.size() + gathered_; }
    /// Calls wait for others to share their command.
    bool filling() const noexcept { return gathered_ != 0; }

    /// Only when ready. The record holds its call, and is this connection's from now on. Calls that
    /// can go together (Call::joint) are written at the end of the loop's turn. False: out of
    /// memory; the call was not sent, and is let go of.
    bool send(PendingCall& record) noexcept;

private:
    enum class State : std::uint8_t {
        closed,
        connecting,  // until every script is loaded
        ready,
        moving,     // until the calls on their way have ended
        returning,  // connects again in the loop's next turn
        pausing,    // before the next attempt
    };

    enum class Context : std::uint8_t { ours, freed_by_hiredis };

    /// From attempt to attempt, where a server says nothing or is busy: each is a probe.
    static constexpr milliseconds probe_pause{ 100 };
    /// One that was ready for so long was good, whether it was used or not.
    static constexpr milliseconds proven_after{ 100 };

    void connected() noexcept override;
    void disconnected(std::string_view reason) noexcept override;
    const ssl_st* tls() const noexcept override { return tls_; }
    void begin();
    void set_up();
    void write_handshake(const std::vector<std::string>& commands);
    bool goes_elsewhere(Loss loss) noexcept;
    void handshake_reply(const redisReply& reply);
    void answered(const redisReply& reply);
    void fail(Call& call, std::string_view error) noexcept;
    void answered_with_error(CallQueue& answered, std::string_view error);
    void resend(PendingCall& record, bool load);
    bool write(const PendingCall& record) noexcept;
    bool write(std::string_view text) noexcept;
    bool write_asking() noexcept;
    void put_in_flight(CallQueue& command) noexcept;
    void start_deadlines() noexcept;
    void end_turn() noexcept;

    void gather(PendingCall& record) noexcept;
    bool write_joint(CallQueue& queue) noexcept;
    bool format_joint(const CallQueue& queue) noexcept;
    void write_gathered() noexcept;
    CallQueue take_all_calls() noexcept;
    void check_deadlines();
    bool anybody_waits() const noexcept;
    bool fail_overdue(milliseconds now);
    void lose(
        std::string_view reason, Loss loss = Loss::failed,
        Context context = Context::ours) noexcept;
    void connect_again(bool at_once, bool probing) noexcept;
    void send_again(CallQueue& lost) noexcept;
    bool usable() const noexcept { return state_ == State::ready || state_ == State::moving; }
    bool proven() const noexcept;
    bool answers_none(const CallQueue& lost) noexcept;
    void fire() noexcept;
    void give_up_context() noexcept;
    void finish_move();
    void restart();
    template <class Body>
    static void contained(Connection& connection, Body&& body) noexcept;

    /// hiredis's callbacks.
    struct Hooks;

    EventLoop& loop_;
    const Endpoint& server_;
    const ServerOptions& options_;
    RecordPool& records_;
    ConnectionOwner& owner_;
    State state_ = State::closed;
    std::string address_;  // of the last attempt
    redisAsyncContext* context_ = nullptr;
    ssl_st* tls_ = nullptr;                 // the context's, if it has TLS
    std::unique_ptr<Timer> connect_timer_;  // of the attempt, or the pause before it
    Alarm deadline_alarm_;                  // of the calls in flight
    Backoff backoff_;
    Handshake handshake_;
    InFlight in_flight_;
    std::vector<CallQueue> together_;  // by ScriptId, calls until the end of the turn
    std::size_t gathered_ = 0;         // all of those
    std::unique_ptr<TurnEnd> turn_end_;
    bool one_by_one_ = false;  // the server does not take keys of several hash slots
    milliseconds attempted_{ 0 };
    milliseconds ready_at_{ 0 };
    bool answered_ = false;    // a call, since it is ready
    unsigned unanswered_ = 0;  // connections lost in a row that took calls and answered none
    unsigned times_ready_ = 0;
    unsigned losses_ = 0;  // counts lost connections, so that loops notice one
    ScriptArguments arguments_;
};

}  // namespace ratelimit::redis
