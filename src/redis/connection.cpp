#include "redis/connection.h"

#include "redis/error_table.h"

#include <new>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

struct Connection::Hooks {
    /// A null reply means that the connection is lost, which `disconnected` handles. A context
    /// with another owner is that of a silent connection.
    template <void (Connection::*Use)(const redisReply&)>
    static void on(redisAsyncContext* context, void* reply, void* issuer) noexcept
    {
        auto* self = static_cast<Connection*>(issuer);
        if (context->data == static_cast<ContextOwner*>(self) && reply != nullptr) {
            self->in_flight_.replied(self->loop_.now());
            self->contained([&] { (self->*Use)(*static_cast<redisReply*>(reply)); });
        }
    }
};

template <class Body>
void Connection::contained(Body&& body) noexcept
try {
    body();
} catch (const std::exception& error) {
    lose(error.what());
}

Connection::Connection(
    EventLoop& loop, const Endpoint& server, const ServerOptions& options,
    const ScriptRegistry& scripts, RecordPool& records, ServerClock& clock, ConnectionOwner& owner)
    : loop_(loop),
      server_(server),
      options_(options),
      records_(records),
      owner_(owner),
      connect_timer_(loop.make_timer([this] { fire(); })),
      handshake_(options, scripts.size() != 0, clock),
      clock_(clock),
      command_(scripts),
      batcher_(scripts, records, [this](CallQueue& calls) { return write(calls); }),
      end_of_turn_(loop.make_end_of_turn([this] { end_turn(); })),
      in_flight_(options.timeout, options.timeout + options.breaker_open),
      silent_(
          loop, records,
          [this](const PendingCall& record) {
              owner_.call_timed_out(record.call->request_count(), record.sent);
          },
          [this] { owner_.replied_late(); }),
      deadlines_(loop, in_flight_, [this] { contained([this] { check_deadlines(); }); })
{
    connect_timer_->cancelable(true);
}

void Connection::fire() noexcept
{
    if (state_ == State::connecting) {
        lose(TlsContext::timeout(tls_), Loss::silent);
    } else {
        contained([this] { connect(); });
    }
}

void Connection::connect()
{
    state_ = State::connecting;
    reconnect_.attempt(loop_.now());
    connect_timer_->start(options_.connect_timeout);
    use_address();
    handshake_.reset();
    std::string reason;
    context_ = open_context(loop_, server_, *this, reason);
    if (context_ == nullptr) {
        lose(reason, is_own_lack(reason) ? Loss::starved : Loss::failed);
    }
}

void Connection::connected() noexcept
{
    contained([this] {
        progressed();
        reconnect_.accepted();
        if (options_.tls != nullptr) {
            tls_ = options_.tls->start(context_->c, server_.host_name, this);
        }
        begin_handshake();
    });
}

/// An attempt to connect has `connect_timeout` for each of its steps.
void Connection::progressed() noexcept
{
    if (state_ == State::connecting) {
        connect_timer_->start(options_.connect_timeout);
    }
}

void Connection::begin_handshake()
{
    for (const std::string& command : handshake_.begin()) {
        if (!issue(command, Hooks::on<&Connection::handshake_reply>)) {
            throw std::bad_alloc();
        }
    }
}

void Connection::handshake_reply(const redisReply& reply)
{
    progressed();
    if (const auto refusal = handshake_.judge(reply)) {
        lose(*refusal, Loss::rejected);
        return;
    }
    if (handshake_.done() && state_ == State::connecting) {
        state_ = State::ready;
        ++times_ready_;
        reconnect_.ready(loop_.now());
        silent_.server_replied();
        connect_timer_->stop();
        owner_.connection_ready(*this);
    }
}

void Connection::disconnected(std::string_view reason) noexcept
{
    if (state_ != State::connecting || tls_ != nullptr || handshake_.done()) {
        lose(reason, Loss::failed, Context::freed_by_hiredis);
        return;
    }
    if (handshake_.leave_name_out()) {
        lose(reason, Loss::good, Context::freed_by_hiredis);
        return;
    }
    lose(handshake_.closed(reason), Loss::failed, Context::freed_by_hiredis);
}

void Connection::move()
{
    if (usable()) {
        state_ = state_ == State::leaving ? state_ : State::moving;
        end_turn();  // moves at once if no call waits
    } else if (state_ != State::closed) {
        restart();
    }
}

void Connection::finish_move()
{
    if (draining() && batcher_.empty() && !in_flight_.awaited()) {
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
    state_ = State::pausing;  // what fails now may send something, but not here
    // What the network has not delivered never is.
    abort_context(in_flight_.empty() ? nullptr : std::exchange(context_, nullptr));
    end_all(give_up(), records_);
    reconnect_.reset();
    connect();
}

bool Connection::send(PendingCall& record) noexcept
{
    if (!usable()) {
        records_.end(record);
        return false;
    }
    if (!in_flight_.has_unsent() && batcher_.empty()) {
        in_flight_.begin_turn(loop_.now());
    }
    end_of_turn_->want();  // before anything is written
    if (batcher_.takes(record)) {
        if (batcher_.add(record)) {
            write_out(*context_);  // Redis works on it while this turn goes on
        }
        return true;
    }
    batcher_.write_first();
    CallQueue single;
    single.push(record);
    if (write(single)) {
        return true;
    }
    records_.end(record);
    return false;
}

/// Writes calls as one command. False: out of memory, and the caller still owns the records.
bool Connection::write(CallQueue& calls) noexcept
try {
    static constexpr std::string_view asking = "*1\r\n$6\r\nASKING\r\n";
    if (calls.front()->asking && !issue_command(*context_, asking, nullptr)) {
        return false;
    }
    write_command(calls, command_);
    if (!issue_command(*context_, command_.text(), on_call_reply)) {
        return false;
    }
    owner_.command_sent();
    in_flight_.add(calls);
    return true;
} catch (const std::exception&) {
    return false;
}

void Connection::end_turn() noexcept
{
    end_all(batcher_.write_all(), records_);
    deadlines_.start();
    contained([this] { finish_move(); });
}

void Connection::check_deadlines()
{
    deadlines_.start();
    const milliseconds now = loop_.now();
    const unsigned losses = losses_;
    in_flight_.each_overdue(now, [&](PendingCall& record) {
        owner_.call_timed_out(record.call->request_count(), record.sent);
        record.release()->overdue(record);
        return losses == losses_;
    });
    finish_move();
    if (losses != losses_ || in_flight_.empty()) {
        return;
    }
    if (in_flight_.silent(now)) {
        lose("no reply", Loss::silent);
        return;
    }
    deadlines_.next();
}

void Connection::call_replied(const redisReply& reply) noexcept
{
    in_flight_.replied(loop_.now());
    contained([&] { answered(reply); });
}

/// Replies arrive in the order of the commands, so this one is for the oldest.
void Connection::answered(const redisReply& reply)
{
    if (in_flight_.empty()) {
        lose("unexpected reply");
        return;
    }
    if (in_flight_.oldest_is_unsent()) {
        deadlines_.start();
    }
    const unsigned losses = losses_;
    InFlight::Command command = in_flight_.take_oldest();
    deadlines_.ended();
    if (reply.type == REDIS_REPLY_ERROR) {
        const std::string_view error{ reply.str, reply.len };
        answered_with_error(command.calls, error.empty() ? "ERR" : error_text(error));
    } else {
        answered_well(command, reply);
    }
    if (!command.in_time && losses == losses_ && !checks_order_) {
        checks_order_ =
            issue(time_command(options_.clock_key), Hooks::on<&Connection::order_checked>);
    }
    finish_move();
}

void Connection::answered_well(InFlight::Command& command, const redisReply& reply)
{
    owner_.command_answered(command.calls.front()->probe);
    if (command.in_time) {
        owner_.call_answered(std::chrono::steady_clock::now() - command.sent);
    }
    const unsigned losses = losses_;
    const bool good = deliver_all(
        command.calls, records_, reply, [this](Call& call) { owner_.reply_malformed(call); });
    if (losses == losses_ && good) {
        reconnect_.answered();
    } else if (losses == losses_ && reconnect_.has_answered()) {
        lose("malformed reply", Loss::good);  // a proxy may have lost a command
    }
}

/// If one reply was lost on the way, each later one is taken for that to the command before its
/// own, and is late. The reply to TIME has a form of its own.
void Connection::order_checked(const redisReply& reply)
{
    checks_order_ = false;
    if (reply.type != REDIS_REPLY_ERROR && !clock_.set(reply)) {
        lose("a reply was lost", Loss::good);
    }
}

void Connection::answered_with_error(CallQueue& answered, std::string_view error)
{
    const unsigned losses = losses_;
    const ErrorRule& rule = rule_of(error);
    const bool behind = rule.leaves && state_ == State::leaving;
    const bool alone = answered.size() > 1 && rule.by_keys;
    if (alone && error.starts_with("CROSSSLOT")) {
        batcher_.stop_batching();
    }
    while (!answered.empty()) {
        PendingCall& record = answered.pop();
        const bool missed = rule.ring == Next::load && record.calls_script;
        if (record.awaited() && (alone || missed || behind)) {
            Call& call = *record.call;
            record.alone = record.alone || alone;
            record.sends_text = record.sends_text || missed;
            if (!(behind ? send_unexecuted(record) : send(record))) {  // its deadline stays
                call.ended(Fate::refused);
            }
            continue;
        }
        if (record.timed_out && record.call != nullptr) {
            record.release()->ended(rule.fate());
        }
        owner_.call_refused(records_.end(record), error);
    }
    if (rule.leaves && losses == losses_ && !behind) {
        left_by_ = error;
        state_ = State::leaving;  // what follows has its replies first: nothing of it is executed
    }
}

/// Frees the context, unless hiredis does, and connects again: at once if the connection had worked
/// or if the server's name has another address. The calls are sent again, or fail.
void Connection::lose(std::string_view reason, Loss loss, Context whose) noexcept
{
    const milliseconds now = loop_.now();
    const std::string unread = options_.password.lost(reason, now);
    // What fails now may send something, but not here.
    const bool connecting = std::exchange(state_, State::pausing) == State::connecting;
    handshake_.name_again(connecting && loss != Loss::good);
    // `reason` may be text of the context, so that is freed last.
    redisAsyncContext* context = std::exchange(context_, nullptr);
    const bool kept = loss == Loss::silent && !connecting && context != nullptr
        && silent_.keep(*context, tls_, in_flight_);
    CallQueue lost = give_up();
    const bool probing = loss == Loss::silent || reason.starts_with("BUSY");
    const bool proven = reconnect_.proven(now);
    loss = reconnect_.judge(loss, kept || !lost.empty(), now);
    const bool address = loss != Loss::starved && loss != Loss::good;
    if (((connecting && address) || loss == Loss::refused) && owner_.address_failed(address_)) {
        loss = Loss::elsewhere;
    }
    const bool at_once = proven || loss == Loss::good || loss == Loss::elsewhere;
    state_ = at_once ? State::returning : State::pausing;
    connect_timer_->start(at_once ? milliseconds{ 0 } : reconnect_.pause(probing, now));
    try {
        owner_.connection_lost(
            *this, unread.empty() ? reason : std::string(reason) + ", and " + unread, loss);
    } catch (const std::exception&) {  // only the report of it was lost
    }
    if (whose == Context::ours) {
        abort_context(kept ? nullptr : context);
    } else if (context != nullptr) {
        context->data = nullptr;
    }
    release_all(lost, records_, [this](Call& call, milliseconds deadline, bool sent) {
        if (!owner_.send_again(call, deadline, sent)) {
            call.end_unanswered();
        }
    });
}

/// Frees the context. Returns the calls: those in flight, then those of unwritten batches.
CallQueue Connection::give_up() noexcept
{
    ++losses_;
    checks_order_ = false;
    tls_ = nullptr;
    free_context(std::exchange(context_, nullptr));
    deadlines_.stop();
    CallQueue calls = in_flight_.take_all();
    batcher_.move_to(calls);
    return calls;
}

void Connection::close() noexcept
{
    state_ = State::closed;
    connect_timer_->stop();
    silent_.close();
    end_all(give_up(), records_);
}

}  // namespace ratelimit::redis
