#pragma once

#include "loop/event_loop.h"
#include "redis/alarm.h"
#include "redis/batcher.h"
#include "redis/context.h"
#include "redis/handshake.h"
#include "redis/in_flight.h"
#include "redis/reconnect_policy.h"

#include <string>
#include <vector>

struct redisReply;

namespace ratelimit::redis {

class Connection;

/// What a connection tells the server that has it.
class ConnectionOwner {
public:
    virtual ~ConnectionOwner() = default;
    virtual void connection_ready(Connection& connection) = 0;
    /// No connection could be made to this address, or its server is of no use. True: the server
    /// has another address, which is to be tried at once.
    virtual bool address_failed(std::string_view address) noexcept = 0;
    /// It will connect again. Called before the calls that were on it are sent again or fail.
    virtual void connection_lost(Connection& connection, std::string_view reason, Loss loss) = 0;
    /// A call of a lost connection. False: it cannot be sent again before the deadline.
    virtual bool send_again(Call& call, milliseconds deadline) noexcept = 0;
    /// A command, which may be that of many calls.
    virtual void command_sent() noexcept = 0;
    /// A command, and not with an error; its callers may have given it up.
    virtual void command_answered() noexcept = 0;
    /// A command, within the timeout of one of its callers; `took`: since it was sent.
    virtual void call_answered(std::chrono::steady_clock::duration took) noexcept = 0;
    /// A call was answered with an error, and its owner has to hear of it: null if no caller waits.
    virtual void call_refused(Call* call, std::string_view error) noexcept = 0;
    virtual void reply_malformed(Call& call) noexcept = 0;
    /// A call of `requests` requests has failed. Its command was `sent` at that time.
    virtual void call_timed_out(unsigned requests, milliseconds sent) noexcept = 0;
};

/// One pipelined connection to one server: its socket, its states, and what becomes of its calls
/// when it is lost. It is ready after the handshake. When it is lost, or its server turns out to be
/// of no use, it connects again: at once if it was good, else after a pause.
class Connection final : private ContextOwner {
public:
    Connection(
        EventLoop& loop, const Endpoint& server, const ServerOptions& options,
        const ScriptRegistry& scripts, RecordPool& records, ConnectionOwner& owner);
    ~Connection() override;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    void connect();
    /// Its server is at another address now: connects there when no caller waits for a reply.
    void move();
    /// Fails the calls in flight and stays closed.
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
    milliseconds attempted() const noexcept { return reconnect_.attempted(); }
    std::size_t in_flight() const noexcept { return in_flight_.size() + batcher_.size(); }
    /// Calls wait for others to share their command.
    bool filling() const noexcept { return !batcher_.empty(); }

    /// Only when ready. The record holds its call, and is this connection's from now on. Calls that
    /// can be batched are written at the end of the loop's turn. False: out of memory; the call was
    /// not sent, and is let go of.
    bool send(PendingCall& record) noexcept;

private:
    enum class State : std::uint8_t {
        closed,
        connecting,  // until the handshake is done
        ready,
        moving,     // until no caller waits for a reply
        returning,  // connects again in the loop's next turn
        pausing,    // before the next attempt
    };

    enum class Context : std::uint8_t { ours, freed_by_hiredis };

    /// hiredis's callbacks.
    struct Hooks;
    using ReplyHandler = void(redisAsyncContext*, void* reply, void*);

    void connected() noexcept override;
    void disconnected(std::string_view reason) noexcept override;
    const ssl_st* tls() const noexcept override { return tls_; }

    bool usable() const noexcept { return state_ == State::ready || state_ == State::moving; }
    void fire() noexcept;
    void say(const std::vector<std::string>& commands);
    void handshake_reply(const redisReply& reply);
    void finish_move();
    void restart();

    bool write(CallQueue& calls) noexcept;
    bool issue(std::string_view text, ReplyHandler* on_reply) noexcept;
    void end_turn() noexcept;
    void start_deadlines() noexcept;
    void check_deadlines();
    void answered(const redisReply& reply);
    void answered_with_error(CallQueue& answered, std::string_view error);
    void resend(PendingCall& record, bool load);

    void lose(
        std::string_view reason, Loss loss = Loss::failed,
        Context context = Context::ours) noexcept;
    CallQueue give_up() noexcept;
    void send_again(CallQueue lost) noexcept;
    template <class Body>
    void contained(Body&& body) noexcept;

    EventLoop& loop_;
    const Endpoint& server_;
    const ServerOptions& options_;
    RecordPool& records_;
    ConnectionOwner& owner_;
    State state_ = State::closed;
    unsigned times_ready_ = 0;
    unsigned losses_ = 0;  // counts lost connections, so that loops notice one
    std::string address_;  // of the last attempt
    redisAsyncContext* context_ = nullptr;
    ssl_st* tls_ = nullptr;                 // the context's, if it has TLS
    std::unique_ptr<Timer> connect_timer_;  // of the attempt, or the pause before it
    ReconnectPolicy reconnect_;
    Handshake handshake_;
    CommandBuffer command_;
    Batcher batcher_;
    std::unique_ptr<EndOfTurn> end_of_turn_;
    InFlight in_flight_;
    Alarm deadline_alarm_;  // of the calls in flight
};

}  // namespace ratelimit::redis
