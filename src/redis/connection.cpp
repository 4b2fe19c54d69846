#include "redis/connection.h"

#include "redis/error_table.h"

#include <new>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

template <class Body>
void Connection::contained(Body&& body) noexcept
try {
    body();
} catch (const std::exception& error) {
    lose(error.what());
}

Connection::Connection(
    EventLoop& loop, const Endpoint& server, const ServerOptions& options,
    const ScriptRegistry& scripts, ServerClock& clock, ConnectionOwner& owner)
    : loop_(loop),
      server_(server),
      options_(options),
      owner_(owner),
      connect_timer_(loop.make_timer([this] { fire(); })),
      handshake_(options, scripts.size() != 0, clock),
      clock_(clock),
      command_(scripts),
      batcher_(scripts, [this](CallQueue& calls) { return write(calls); }),
      end_of_turn_(loop.make_end_of_turn([this] { end_turn(); })),
      silent_(loop)
{
}

void Connection::fire() noexcept
{
    if (state_ == State::connecting) {
        lose(TlsContext::timeout(pipeline_ == nullptr ? nullptr : pipeline_->tls()), Loss::silent);
    } else {
        contained([this] { attempt(); });
    }
}

void Connection::attempt()
{
    state_ = State::connecting;
    reconnect_.attempt(loop_.now());
    connect_timer_->start(options_.connect_timeout);
    use_address();
    handshake_.reset();
    checks_order_ = false;
    pipeline_ = std::make_shared<Pipeline>(
        loop_, static_cast<PipelineOwner&>(*this), options_.timeout,
        options_.timeout + options_.breaker_open);
    std::string reason;
    if (!pipeline_->connect(loop_, server_, reason)) {
        lose(reason, is_own_lack(reason) ? Loss::starved : Loss::failed);
    }
}

void Connection::connected(Pipeline& pipeline) noexcept
{
    contained([&] {
        progressed();
        reconnect_.accepted();
        if (options_.tls != nullptr) {
            pipeline.start_tls(*options_.tls, server_.host_name);
        }
        end_of_turn_->want();  // before anything is written
        for (const std::string& command : handshake_.begin()) {
            if (!pipeline.issue(command)) {
                throw std::bad_alloc();
            }
        }
    });
}

/// An attempt to connect has `connect_timeout` for each of its steps.
void Connection::progressed() noexcept
{
    if (state_ == State::connecting) {
        connect_timer_->start(options_.connect_timeout);
    }
}

void Connection::handshake_reply(const redisReply& reply)
{
    progressed();
    if (const auto refusal = handshake_.judge(reply)) {
        lose(*refusal, Loss::rejected);
        return;
    }
    if (handshake_.done()) {
        state_ = State::ready;
        ++times_ready_;
        reconnect_.ready(loop_.now());
        silent_.server_replied();
        connect_timer_->stop();
        owner_.connection_ready(*this);
    }
}

void Connection::failed(Pipeline& pipeline, std::string_view reason, Loss loss) noexcept
{
    if (!uses(pipeline)) {
        silent_.close(pipeline);
    } else if (state_ != State::connecting || pipeline.tls() != nullptr || handshake_.done()) {
        lose(reason, loss);
    } else if (handshake_.leave_name_out()) {
        lose(reason, Loss::good);
    } else {
        lose(handshake_.closed(reason));
    }
}

void Connection::deadlines_passed() noexcept
{
    contained([this] { finish_move(); });
}

void Connection::connect()
{
    if (usable()) {
        state_ = state_ == State::leaving ? state_ : State::moving;
        end_turn();  // moves at once if no call waits
    } else {
        restart();
    }
}

void Connection::finish_move()
{
    if (draining() && batcher_.empty() && !pipeline_->calls().awaited()) {
        if (state_ == State::moving) {
            restart();
        } else {
            lose(std::exchange(left_by_, {}), Loss::refused);
        }
    }
}

/// Connects to the server's current address. No caller may be waiting for a call in flight.
void Connection::restart()
{
    state_ = State::unconnected;
    const auto pipeline = std::exchange(pipeline_, nullptr);
    if (pipeline != nullptr && !silent_.keep(pipeline)) {
        pipeline->close();
    }
    reconnect_.reset();
    attempt();
}

bool Connection::send(PendingCall& record) noexcept
{
    if (usable()) {
        begin_turn();
        if (batcher_.takes(record)) {
            if (batcher_.add(record)) {
                pipeline_->flush();  // Redis works on it while this turn goes on
            }
            return true;
        }
        batcher_.write_first();
        CallQueue single;
        single.push(record);
        if (write(single)) {
            return true;
        }
    }
    record.end();
    return false;
}

/// Writes calls as one command. False: out of memory, and the caller still owns the records.
bool Connection::write(CallQueue& calls) noexcept
try {
    static constexpr std::string_view asking = "*1\r\n$6\r\nASKING\r\n";
    if (calls.front()->call->routing.asking && !pipeline_->issue(asking, false)) {
        return false;
    }
    write_command(calls, command_);
    if (!pipeline_->issue(command_.text())) {
        return false;
    }
    owner_.command_sent();
    pipeline_->calls().add(calls);
    return true;
} catch (const std::exception&) {
    return false;
}

void Connection::end_turn() noexcept
{
    end_all(batcher_.write_all());
    if (pipeline_ != nullptr) {
        pipeline_->mark_sent();
    }
    contained([this] { finish_move(); });
}

void Connection::replied(Pipeline& pipeline, const redisReply& reply) noexcept
{
    if (!uses(pipeline)) {
        owner_.replied_late();
        silent_.replied(pipeline, reply);
    } else {
        contained([&] {
            state_ == State::connecting ? handshake_reply(reply) : answered(pipeline, reply);
        });
    }
}

/// Replies arrive in the order of the commands, so this one is for the oldest.
void Connection::answered(Pipeline& pipeline, const redisReply& reply)
{
    InFlight::Command command = pipeline.take_oldest();
    if (command.calls.front()->kind == PendingCall::Kind::order) {
        command.calls.pop().end();
        checks_order_ = false;
        if (reply.type != REDIS_REPLY_ERROR && !clock_.set(reply, command.sent)) {
            lose("a reply was lost", Loss::good);
        }
    } else if (reply.type == REDIS_REPLY_ERROR) {
        const std::string_view error{ reply.str, reply.len };
        answered_with_error(pipeline, command.calls, error.empty() ? "ERR" : error_text(error));
    } else {
        answered_well(pipeline, command, reply);
    }
    if (!command.in_time && uses(pipeline) && !checks_order_) {
        check_order();
    }
    finish_move();
}

void Connection::answered_well(
    Pipeline& pipeline, InFlight::Command& command, const redisReply& reply)
{
    const Exchange exchange{ &clock_, command.sent, ServerClock::steady_now() };
    const auto took = exchange.answered - exchange.sent;
    owner_.command_answered(
        command.calls.front()->kind == PendingCall::Kind::probe,
        command.in_time ? std::optional{ took } : std::nullopt);
    const bool good = deliver_all(command.calls, reply, exchange, [this](Call& call) {
        owner_.call_refused(&call, "malformed reply");
    });
    if (uses(pipeline) && good) {
        reconnect_.answered();
    } else if (uses(pipeline) && reconnect_.has_answered()) {
        lose("malformed reply", Loss::good);  // a proxy may have lost a command
    }
}

/// If one reply was lost on the way, each later one is taken for that to the command before its
/// own, and is late. The reply to TIME has a form of its own.
void Connection::check_order()
{
    begin_turn();
    if (pipeline_->issue(time_command(options_.clock_key))) {
        auto& record = *new PendingCall;
        record.kind = PendingCall::Kind::order;
        CallQueue command;
        command.push(record);
        pipeline_->calls().add(command);
        checks_order_ = true;
    }
}

void Connection::answered_with_error(
    Pipeline& pipeline, CallQueue& answered, std::string_view error)
{
    const ErrorRule& rule = rule_of(error);
    const bool behind = rule.leaves && state_ == State::leaving;
    const bool alone = answered.size() > 1 && rule.by_keys;
    if (alone && error.starts_with("CROSSSLOT")) {
        batcher_.stop_batching();
    }
    const ScriptId script = answered.front()->by_digest;
    const bool missed = rule.loads && command_.use_text_of(script);
    while (!answered.empty()) {
        PendingCall& record = answered.pop();
        Call* const call = record.call;
        if (call != nullptr && !record.timed_out && (alone || missed || behind)) {
            record.keep_deadline();
            record.alone = record.alone || alone;
            record.missed = missed ? script : record.missed;
            call->routing.written = call->routing.written && !behind;
            if (!(behind ? owner_.send_again(*record.end(), false) : send(record))) {
                call->ended(Fate::refused);
            }
            continue;
        }
        if (call != nullptr && record.timed_out) {
            record.release()->ended(rule.fate());
        }
        owner_.call_refused(record.end(), error);
    }
    if (rule.leaves && uses(pipeline) && !behind) {
        left_by_ = error;
        // Calls behind this one get their replies first: Redis executes none of them.
        state_ = State::leaving;
    }
}

/// Gives the pipeline up, and connects again: at once if the connection had worked or if the
/// server's name has another address. The calls are sent again, or fail.
void Connection::lose(std::string_view reason, Loss loss) noexcept
{
    const milliseconds now = loop_.now();
    const std::string told = options_.password.lost(reason, now);
    const bool connecting = std::exchange(state_, State::unconnected) == State::connecting;
    handshake_.name_again(connecting && loss != Loss::good);
    // `reason` may be text of hiredis's context, which is freed last.
    const auto pipeline = std::exchange(pipeline_, nullptr);
    const bool kept =
        loss == Loss::silent && !connecting && pipeline != nullptr && silent_.keep(pipeline);
    CallQueue lost;
    if (pipeline != nullptr && !kept) {
        lost = pipeline->take_calls();
    }
    batcher_.move_to(lost);
    const bool probing = loss == Loss::silent || reason.starts_with("BUSY");
    const bool proven = reconnect_.proven(now);
    loss = reconnect_.judge(loss, kept || !lost.empty(), now);
    const bool address = loss != Loss::starved && loss != Loss::good;
    const bool elsewhere = ((connecting && address) || loss == Loss::refused)
        && owner_.address_failed(*this, told, loss);
    const bool at_once = proven || loss == Loss::good || elsewhere;
    state_ = at_once ? State::returning : State::unconnected;
    connect_timer_->start(at_once ? milliseconds{ 0 } : reconnect_.pause(probing, now));
    try {
        owner_.connection_lost(*this, told, loss, elsewhere);
    } catch (const std::exception&) {  // only the report of it was lost
    }
    if (pipeline != nullptr && !kept) {
        pipeline->abort();
    }
    release_all(lost, [this](Call& call, bool sent) {
        if (!owner_.send_again(call, sent)) {
            call.end_unanswered();
        }
    });
}

void Connection::close() noexcept
{
    state_ = State::unconnected;
    connect_timer_->stop();
    silent_.close_all();
    CallQueue calls;
    if (const auto pipeline = std::exchange(pipeline_, nullptr)) {
        pipeline->free();
        calls = pipeline->take_calls();
    }
    batcher_.move_to(calls);
    end_all(calls);
}

}  // namespace ratelimit::redis
