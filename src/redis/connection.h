#pragma once

#include "loop/event_loop.h"
#include "redis/batcher.h"
#include "redis/context.h"
#include "redis/handshake.h"
#include "redis/pipeline.h"
#include "redis/reconnect_policy.h"
#include "redis/silent_pipelines.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

struct redisReply;

namespace ratelimit::redis {

class Connection;

/// The events that a connection reports to its server.
class ConnectionOwner {
public:
    virtual ~ConnectionOwner() = default;
    virtual void connection_ready(Connection& connection) = 0;
    /// It could not be made, or the server at its address cannot be used. True: the server has
    /// another address, which must be tried at once.
    virtual bool address_failed(
        const Connection& connection, std::string_view reason, Loss loss) noexcept = 0;
    /// The connection was lost, and will connect again. Called before its calls are sent again or
    /// fail. `elsewhere`: what address_failed has returned.
    virtual void connection_lost(
        Connection& connection, std::string_view reason, Loss loss, bool elsewhere) = 0;
    /// A call of a lost connection. `had_left`: Redis may have executed it. False: it cannot be
    /// sent again before it expires.
    virtual bool send_again(Call& call, bool had_left) noexcept = 0;
    /// A command, which may be that of many calls.
    virtual void command_sent() noexcept = 0;
    /// A command has a reply that is not an error. `probe`: of PendingCall. `took`: since it was
    /// sent; empty: all its calls have timed out.
    virtual void command_answered(bool probe, std::optional<microseconds> took) noexcept = 0;
    /// A reply came on a connection that was given up.
    virtual void replied_late() noexcept = 0;
    /// A call has an error reply, or a malformed one. The server must end the call; null: no caller
    /// waits for it.
    virtual void call_refused(Call* call, std::string_view error) noexcept = 0;
    /// A call for `requests` requests has timed out. `sent`: when its command was sent.
    virtual void call_timed_out(unsigned requests, milliseconds sent) noexcept = 0;
};

/// A connection to one server: its state, and its pipeline, which is another one each time that it
/// connects. It is ready after the handshake. If it is lost, or the server cannot be used, it
/// connects again: at once if it had worked, otherwise after a pause.
class Connection final : private PipelineOwner {
public:
    Connection(
        EventLoop& loop, const Endpoint& server, const ServerOptions& options,
        const ScriptRegistry& scripts, ServerClock& clock, ConnectionOwner& owner);
    ~Connection() override { close(); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// Connects to the server's current address, when no caller waits for a reply.
    void connect();
    /// Drops late replies that a server sends which may not be the master any more.
    void forget_silent() noexcept { silent_.close_all(); }
    /// Fails the calls in flight and stays closed.
    void close() noexcept;

    bool ready() const noexcept { return state_ == State::ready; }
    /// Of its last attempt.
    std::string_view address() const noexcept { return address_; }
    /// How often the connection has become ready.
    unsigned times_ready() const noexcept { return times_ready_; }
    /// Whether it may be ready soon, so that calls can wait for it.
    bool connecting() const noexcept
    {
        return state_ == State::connecting || state_ == State::returning || draining();
    }
    /// Whether it has been ready at another address since the last call.
    bool take_moved() noexcept { return std::exchange(moved_, false); }
    /// When the last reply arrived, by the loop's clock. It must be ready.
    milliseconds last_reply() const noexcept { return pipeline_->calls().last_reply(); }
    /// When it last began to connect.
    milliseconds attempted() const noexcept { return reconnect_.attempted(); }
    std::size_t in_flight() const noexcept
    {
        return batcher_.size() + (pipeline_ == nullptr ? 0 : pipeline_->calls().size());
    }
    /// Whether nothing is in flight, and no late reply is awaited.
    bool idle() const noexcept { return in_flight() == 0 && silent_.empty(); }
    /// Whether a batch is not written yet.
    bool filling() const noexcept { return !batcher_.empty(); }

    /// Takes over the record, which must hold its call. Calls that can be batched
    /// are written at the end of the loop's turn. False: the connection is not ready, or memory is
    /// used up. The call was not sent, and the record is freed.
    bool send(PendingCall& record) noexcept;

    /// Writes at once all that waits for the end of the turn, as far as the socket takes it.
    void flush() noexcept
    {
        if (usable()) {
            end_turn();
        }
        if (usable()) {  // still
            pipeline_->flush();
        }
    }

private:
    enum class State : std::uint8_t {
        connecting,  // until the handshake is done
        ready,
        moving,       // until no caller waits for a reply; then connects to the new address
        leaving,      // the same, but the server cannot be used any longer; then is lost
        returning,    // connects again in the loop's next turn
        unconnected,  // closed, or lost and not yet trying again
    };

    void connected(Pipeline& pipeline) noexcept override;
    void failed(Pipeline& pipeline, std::string_view reason, Loss loss) noexcept override;
    void replied(Pipeline& pipeline, const redisReply& reply) noexcept override;
    void timed_out(const PendingCall& record) noexcept override
    {
        owner_.call_timed_out(record.call->request_count(), record.sent);
    }
    void deadlines_passed() noexcept override;
    void progressed() noexcept override;

    bool draining() const noexcept { return state_ == State::moving || state_ == State::leaving; }
    bool usable() const noexcept { return state_ == State::ready || draining(); }
    /// Whether it is still this connection's pipeline: a callback may have lost it.
    bool uses(const Pipeline& pipeline) const noexcept { return pipeline_.get() == &pipeline; }
    void fire() noexcept;
    /// Another address is another server, with other counts: calls that the first one still
    /// executes do not count there. But all addresses of a name may be of one server.
    void use_address()
    {
        const auto& all = server_.addresses;
        if (address_ != server_.host) {
            moved_ = moved_ || times_ready_ > 0;
            if (std::find(all.begin(), all.end(), address_) == all.end()) {
                silent_.close_all();
            }
            address_ = server_.host;
        }
    }
    void attempt();
    void handshake_reply(const redisReply& reply);
    void finish_move();
    void restart();

    bool write(CallQueue& calls) noexcept;
    void begin_turn() noexcept
    {
        if (!pipeline_->calls().has_unsent() && batcher_.empty()) {
            pipeline_->calls().begin_turn(loop_.now());
        }
        end_of_turn_->want();  // before anything is written
    }
    void end_turn() noexcept;
    void answered(Pipeline& pipeline, const redisReply& reply);
    void answered_well(Pipeline& pipeline, InFlight::Command& command, const redisReply& reply);
    void answered_with_error(Pipeline& pipeline, CallQueue& answered, std::string_view error);
    void check_order();

    void lose(std::string_view reason, Loss loss = Loss::failed) noexcept;
    template <class Body>
    void contained(Body&& body) noexcept;

    EventLoop& loop_;
    const Endpoint& server_;
    const ServerOptions& options_;
    ConnectionOwner& owner_;
    State state_ = State::unconnected;
    unsigned times_ready_ = 0;
    std::string address_;                   // of the last attempt
    bool moved_ = false;                    // away from an address where it was ready
    std::string left_by_;                   // the error of State::leaving
    std::unique_ptr<Timer> connect_timer_;  // limits an attempt, or the pause before it
    ReconnectPolicy reconnect_;
    Handshake handshake_;
    ServerClock& clock_;
    bool checks_order_ = false;  // a reply to TIME will tell
    CommandBuffer command_;
    Batcher batcher_;
    std::unique_ptr<EndOfTurn> end_of_turn_;
    std::shared_ptr<Pipeline> pipeline_;  // null: closed, or lost
    SilentPipelines silent_;
};

}  // namespace ratelimit::redis
