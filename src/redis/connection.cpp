#include "redis/connection.h"

#include "redis/error_text.h"

#include <new>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

struct Connection::Hooks {
    /// A null reply means that the connection is lost, which `disconnected` handles.
    template <class Use>
    static void with(redisAsyncContext* context, void* reply, Use&& use) noexcept
    {
        auto* connection = static_cast<Connection*>(static_cast<ContextOwner*>(context->data));
        if (connection != nullptr && reply != nullptr) {
            connection->contained([&] { use(*connection, *static_cast<redisReply*>(reply)); });
        }
    }

    static void on_handshake_reply(redisAsyncContext* context, void* data, void*) noexcept
    {
        with(context, data, [](Connection& connection, const redisReply& reply) {
            connection.handshake_reply(reply);
        });
    }

    static void on_answer(redisAsyncContext* context, void* data, void*) noexcept
    {
        with(context, data, [](Connection& connection, const redisReply& reply) {
            connection.answered(reply);
            connection.finish_move();
        });
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
      handshake_(options, scripts, clock),
      command_(handshake_.digests()),
      batcher_(scripts.size(), records, [this](CallQueue& calls) { return write(calls); }),
      end_of_turn_(loop.make_end_of_turn([this] { end_turn(); })),
      in_flight_(options.timeout, options.timeout + options.breaker_open),
      deadline_alarm_(loop, [this] { contained([this] { check_deadlines(); }); })
{
    connect_timer_->cancelable(true);
}

Connection::~Connection()
{
    close();
}

void Connection::fire() noexcept
{
    if (state_ == State::connecting) {
        lose("timed out while connecting", Loss::silent);
    } else {
        contained([this] { connect(); });
    }
}

void Connection::connect()
{
    state_ = State::connecting;
    reconnect_.attempt(loop_.now());
    connect_timer_->start(options_.connect_timeout);
    address_ = server_.host;
    std::string reason;
    context_ = open_context(loop_, server_, *this, reason);
    if (context_ == nullptr) {
        lose(reason, is_own_lack(reason) ? Loss::starved : Loss::failed);
    }
}

void Connection::connected() noexcept
{
    contained([this] {
        reconnect_.accepted();
        if (server_.unix_path.empty()) {
            redisEnableKeepAlive(&context_->c);
        }
        if (options_.tls != nullptr) {
            std::string reason;
            tls_ = options_.tls->start(context_->c, server_.host_name, reason);
            if (tls_ == nullptr) {
                lose(reason);
                return;
            }
        }
        say(handshake_.begin());
    });
}

void Connection::say(const std::vector<std::string>& commands)
{
    end_of_turn_->want();  // before anything is written
    for (const std::string& command : commands) {
        if (!issue(command, Hooks::on_handshake_reply)) {
            throw std::bad_alloc();
        }
    }
}

void Connection::handshake_reply(const redisReply& reply)
{
    in_flight_.replied(loop_.now());
    if (const auto refusal = handshake_.judge(reply)) {
        lose(*refusal, Loss::rejected);
        return;
    }
    if (handshake_.done() && state_ == State::connecting) {
        state_ = State::ready;
        ++times_ready_;
        reconnect_.ready(loop_.now());
        connect_timer_->stop();
        owner_.connection_ready(*this);
    }
}

void Connection::disconnected(std::string_view reason) noexcept
{
    lose(reason, Loss::failed, Context::freed_by_hiredis);
}

void Connection::move()
{
    if (usable()) {
        state_ = State::moving;
        end_turn();  // moves at once if no call waits
    } else if (state_ != State::closed) {
        restart();
    }
}

void Connection::finish_move()
{
    if (state_ == State::moving && batcher_.empty() && !in_flight_.awaited()) {
        restart();
    }
}

/// Connects to the server's current address. No caller may be waiting for a call in flight.
void Connection::restart()
{
    fail_all(give_up(), records_, Failure::connection);
    reconnect_.reset();
    connect();
}

bool Connection::send(PendingCall& record) noexcept
{
    if (!in_flight_.has_unsent() && batcher_.empty()) {
        in_flight_.begin_turn(loop_.now());
    }
    end_of_turn_->want();  // before anything is written
    if (const BatchPart* part = record.call->batch_part()) {
        if (batcher_.add(part->script(), record)) {
            write_out(*context_);  // Redis works on it while this turn goes on
        }
        return true;
    }
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
    if (calls.front()->asking && !issue(asking, nullptr)) {
        return false;
    }
    write_command(calls, command_);
    if (!issue(command_.text(), Hooks::on_answer)) {
        return false;
    }
    owner_.command_sent();
    in_flight_.add(calls);
    return true;
} catch (const std::exception&) {
    return false;
}

bool Connection::issue(std::string_view text, ReplyHandler* on_reply) noexcept
{
    return redisAsyncFormattedCommand(context_, on_reply, nullptr, text.data(), text.size())
        == REDIS_OK;
}

void Connection::end_turn() noexcept
{
    fail_all(batcher_.write_all(), records_, Failure::connection);
    start_deadlines();
    contained([this] { finish_move(); });
}

/// The calls of this turn are sent now: starts their timeouts.
void Connection::start_deadlines() noexcept
{
    if (in_flight_.has_unsent()) {
        const auto watch = in_flight_.leave(loop_.now(), std::chrono::steady_clock::now());
        deadline_alarm_.set_no_later_than(watch.due);
        if (watch.delays_exit) {
            deadline_alarm_.delay_exit(true);
        }
    }
}

void Connection::check_deadlines()
{
    start_deadlines();
    const milliseconds now = loop_.now();
    const unsigned losses = losses_;
    in_flight_.each_overdue(now, [&](PendingCall& record) {
        owner_.call_timed_out(record.call->request_count(), record.sent);
        record.release_overdue()->on_failure(Failure::timeout);
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
    const auto watch = in_flight_.watch(now);
    deadline_alarm_.set(watch.due);
    deadline_alarm_.delay_exit(watch.delays_exit);
}

/// Replies arrive in the order of the commands, so this one is for the oldest.
void Connection::answered(const redisReply& reply)
{
    if (in_flight_.empty()) {
        lose("unexpected reply");
        return;
    }
    if (in_flight_.oldest_is_unsent()) {
        start_deadlines();
    }
    in_flight_.replied(loop_.now());
    auto [calls, sent, in_time] = in_flight_.take_oldest();
    if (in_flight_.empty()) {
        deadline_alarm_.delay_exit(false);
    }
    if (reply.type == REDIS_REPLY_ERROR) {
        answered_with_error(calls, reply.len == 0 ? "ERR" : error_text({ reply.str, reply.len }));
        return;
    }
    owner_.command_answered();
    if (in_time) {
        owner_.call_answered(std::chrono::steady_clock::now() - sent);
    }
    const unsigned losses = losses_;
    bool good = true;
    for (std::size_t index = 0, size = calls.size(); index < size; ++index) {
        Call* call = records_.end(calls.pop());
        if (call != nullptr && !deliver(*call, reply, index, size)) {
            good = false;
            owner_.reply_malformed(*call);
        }
    }
    if (losses == losses_ && good) {
        reconnect_.answered();
    } else if (losses == losses_ && reconnect_.has_answered()) {
        lose("malformed reply", Loss::good);  // a proxy may have lost a command
    }
}

void Connection::answered_with_error(CallQueue& answered, std::string_view error)
{
    const unsigned losses = losses_;
    const bool lost_scripts = error.starts_with("NOSCRIPT");
    // Redis refuses a batch of keys of several slots, and has executed nothing of it.
    const bool apart = answered.size() > 1 && wants_keys_apart(error);
    if (apart && error.starts_with("CROSSSLOT")) {
        batcher_.stop_batching();
    }
    while (!answered.empty()) {
        PendingCall& record = answered.pop();
        const bool may_load = lost_scripts && record.missed_scripts++ < most_loads;
        if (record.awaited() && (apart || may_load)) {
            resend(record, may_load);
        } else {
            record.fail_late(Failure::error_reply);
            owner_.call_refused(records_.end(record), error);
        }
    }
    if (leaves_server(error) && losses == losses_) {
        lose(error, Loss::refused);
    }
}

/// Sends a call again. Its deadline stays. `load`: the server has lost its scripts. They are loaded
/// before, once for all the calls that met this error.
void Connection::resend(PendingCall& record, bool load)
{
    Call& call = *record.call;
    record.apart = !load;
    if (usable() && load && handshake_.done()) {
        contained([this] { say(handshake_.load_scripts()); });
    }
    if (!usable()) {
        records_.end(record);
    } else if (send(record)) {
        return;
    }
    call.on_failure(Failure::error_reply);
}

/// Frees the context, unless hiredis does, and connects again: at once if the connection had worked
/// or if the server's name has another address. The calls are sent again, or fail.
void Connection::lose(std::string_view reason, Loss loss, Context whose) noexcept
{
    const milliseconds now = loop_.now();
    const bool connecting = state_ == State::connecting;
    // `reason` may be text of the context, so that is freed last.
    redisAsyncContext* context = std::exchange(context_, nullptr);
    CallQueue lost = give_up();
    const bool probing = loss == Loss::silent || reason.starts_with("BUSY");
    const bool proven = reconnect_.proven(now);
    loss = reconnect_.judge(loss, !lost.empty(), now);
    const bool address = loss != Loss::starved && loss != Loss::good;
    if (((connecting && address) || loss == Loss::refused) && owner_.address_failed(address_)) {
        loss = Loss::elsewhere;
    }
    const bool at_once = proven || loss == Loss::good || loss == Loss::elsewhere;
    state_ = at_once ? State::returning : State::pausing;
    connect_timer_->start(at_once ? milliseconds{ 0 } : reconnect_.pause(probing, now));
    try {
        owner_.connection_lost(*this, reason, loss);
    } catch (const std::exception&) {
        // Only the report of it was lost.
    }
    if (whose == Context::ours) {
        free_context(context);
    } else if (context != nullptr) {
        context->data = nullptr;
    }
    send_again(lost);
}

void Connection::send_again(CallQueue lost) noexcept
{
    while (!lost.empty()) {
        PendingCall& record = lost.pop();
        const milliseconds deadline = record.deadline;
        const bool had_left = record.sent.count() != 0;
        Call* call = records_.end(record);
        if (call != nullptr && !owner_.send_again(*call, deadline, had_left)) {
            call->on_failure(Failure::connection);
        }
    }
}

/// Frees the context. Returns the calls: those in flight, then those of unwritten batches.
CallQueue Connection::give_up() noexcept
{
    ++losses_;
    tls_ = nullptr;
    free_context(std::exchange(context_, nullptr));
    deadline_alarm_.stop();
    CallQueue calls = in_flight_.take_all();
    batcher_.move_to(calls);
    return calls;
}

void Connection::close() noexcept
{
    state_ = State::closed;
    connect_timer_->stop();
    fail_all(give_up(), records_, Failure::connection);
}

}  // namespace ratelimit::redis
