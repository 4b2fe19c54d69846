#include "redis/connection.h"
#include "redis/connection_hooks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

std::string_view text_of(const redisReply& reply) noexcept
{
    return { reply.str, reply.len };
}

constexpr std::string_view malformed = "malformed reply";

/// Of a reply that is a string with as many parts, each of so many bytes.
std::optional<std::string_view> part_of(
    const redisReply& reply, std::size_t part, std::size_t parts, std::size_t bytes) noexcept
{
    if (reply.type != REDIS_REPLY_STRING || reply.len != parts * bytes) {
        return std::nullopt;
    }
    return text_of(reply).substr(part * bytes, bytes);
}

/// The error that a script met, as it is where no script is: Redis before 7.0 wraps it, as
/// "ERR Error running script (...): ...: -READONLY You can't write against a read only replica."
std::string_view unwrapped(std::string_view error) noexcept
{
    constexpr std::string_view mark = ": -";
    const auto place = error.find(mark);
    const bool wrapped = error.starts_with("ERR Error running script") && place != error.npos
        && place + mark.size() < error.size();
    const auto inner = wrapped ? error.substr(place + mark.size()) : error;
    const auto is_upper = [](char letter) { return letter >= 'A' && letter <= 'Z'; };
    return is_upper(inner.front()) ? inner : error;
}

/// Errors of a server that is of no use now, and maybe no more the right one.
bool leaves_server(std::string_view error) noexcept
{
    for (const std::string_view word : { "READONLY", "LOADING", "MASTERDOWN", "NOAUTH" }) {
        if (error.starts_with(word)) {
            return true;
        }
    }
    return false;
}

}  // namespace

Connection::Connection(
    EventLoop& loop, const Endpoint& server, const ServerOptions& options,
    const ScriptRegistry& scripts, RecordPool& records, ConnectionOwner& owner)
    : loop_(loop),
      server_(server),
      options_(options),
      records_(records),
      owner_(owner),
      connect_timer_(loop.make_timer([this] { fire(); })),
      deadline_alarm_(loop, [this] { contained(*this, [this] { check_deadlines(); }); }),
      backoff_(std::random_device{}()),
      handshake_(options, scripts),
      in_flight_(options.timeout, options.timeout + options.breaker_open),
      together_(scripts.size()),
      turn_end_(loop.make_turn_end([this] { end_turn(); }))
{
    connect_timer_->on_exit(Timer::OnExit::ignore);
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
        contained(*this, [this] { connect(); });
    }
}

void Connection::connect()
{
    state_ = State::connecting;
    answered_ = false;
    attempted_ = loop_.now();
    connect_timer_->start(options_.connect_timeout);
    begin();
}

void Connection::move()
{
    if (state_ == State::closed) {
        return;
    }
    if (usable()) {
        state_ = State::moving;
        end_turn();  // and moves, if no call waits
    } else {
        restart();
    }
}

void Connection::finish_move()
{
    if (state_ == State::moving && !anybody_waits()) {
        restart();
    }
}

/// Connects anew, at once. No call is on its way that anybody waits for.
void Connection::restart()
{
    ++losses_;
    give_up_context();
    CallQueue forgotten = take_all_calls();
    fail_all(forgotten, records_, Failure::connection);
    deadline_alarm_.stop();
    backoff_.reset();
    connect();
}

void Connection::give_up_context() noexcept
{
    tls_ = nullptr;
    free_context(std::exchange(context_, nullptr));
}

bool Connection::send(PendingCall& record) noexcept
{
    if (!in_flight_.has_unsent() && gathered_ == 0) {
        in_flight_.begin_turn(loop_.now());
    }
    turn_end_->want();  // before anything is written
    if (record.call->joint() != nullptr) {
        gather(record);
        return true;
    }
    if (!write(record)) {
        record.release();
        records_.give_back(record);
        return false;
    }
    CallQueue sent;
    sent.push(record);
    put_in_flight(sent);
    return true;
}

/// Calls that were written as one command.
void Connection::put_in_flight(CallQueue& command) noexcept
{
    owner_.command_sent();
    in_flight_.add(command);
}

void Connection::end_turn() noexcept
{
    write_gathered();
    start_deadlines();
    contained(*this, [this] { finish_move(); });
}

bool Connection::write_asking() noexcept
{
    static constexpr std::string_view asking = "*1\r\n$6\r\nASKING\r\n";
    return redisAsyncFormattedCommand(context_, nullptr, nullptr, asking.data(), asking.size())
        == REDIS_OK;
}

/// A command that is answered. False: out of memory.
bool Connection::write(std::string_view text) noexcept
{
    return redisAsyncFormattedCommand(context_, Hooks::on_answer, nullptr, text.data(), text.size())
        == REDIS_OK;
}

bool Connection::write(const PendingCall& record) noexcept
try {
    const Call& call = *record.call;
    if (record.asking && !write_asking()) {
        return false;
    }
    if (const auto text = call.command(); !text.empty()) {
        return write(text);
    }
    arguments_.begin(handshake_.digest(call.script()), call.argument_count());
    call.write(arguments_);
    return write(arguments_.text());
} catch (const std::exception&) {
    return false;
}

/// Replies come in the order of what was written: this one is that of the oldest calls.
void Connection::answered(const redisReply& reply)
{
    if (in_flight_.empty()) {
        lose("a reply that nobody asked for");
        return;
    }
    if (in_flight_.oldest_is_unsent()) {
        start_deadlines();
    }
    in_flight_.replied(loop_.now());
    auto [answered, sent, in_time] = in_flight_.take_oldest();
    if (in_flight_.empty()) {
        deadline_alarm_.delay_exit(false);
    }
    if (reply.type == REDIS_REPLY_ERROR) {
        answered_with_error(answered, reply.len == 0 ? "ERR" : unwrapped(text_of(reply)));
        return;
    }
    // Only now: one that takes scripts and refuses calls is not to be asked again at once.
    answered_ = true;
    unanswered_ = 0;
    backoff_.reset();
    owner_.command_answered();
    if (in_time) {
        owner_.call_answered(std::chrono::steady_clock::now() - sent);
    }
    const std::size_t parts = answered.size();
    for (std::size_t part = 0; part < parts; ++part) {
        PendingCall& record = answered.pop();
        Call* call = record.release();
        records_.give_back(record);
        if (call == nullptr) {
            continue;
        }
        if (const JointScript* joint = call->joint()) {
            const auto own = part_of(reply, part, parts, joint->reply_bytes);
            own && call->accepts_part(*own) ? call->on_part(*own) : fail(*call, malformed);
        } else {
            call->accepts(reply) ? call->on_reply(reply) : fail(*call, malformed);
        }
    }
}

/// Its own failure, and no other call's.
void Connection::fail(Call& call, std::string_view error) noexcept
{
    owner_.call_refused(error, call.stands_for());
    call.on_failure(Failure::error_reply);
}

void Connection::answered_with_error(CallQueue& answered, std::string_view error)
{
    const unsigned losses = losses_;
    const bool lost_scripts = error.starts_with("NOSCRIPT");
    // Nothing of it was executed.
    const bool apart = answered.size() > 1 && error.starts_with("CROSSSLOT");
    one_by_one_ = one_by_one_ || apart;
    while (!answered.empty()) {
        PendingCall& record = answered.pop();
        if (record.call != nullptr && (apart || (lost_scripts && !record.sent_again))) {
            resend(record, lost_scripts);
            continue;
        }
        Call* call = record.release();
        records_.give_back(record);
        const ErrorFate fate = owner_.fate_of(call, error);
        if (fate == ErrorFate::refused) {
            owner_.call_refused(error, call == nullptr ? 1 : call->stands_for());
        }
        if (call != nullptr && fate != ErrorFate::redirected) {
            call->on_failure(
                fate == ErrorFate::keys_apart ? Failure::keys_apart : Failure::error_reply);
        }
    }
    if (leaves_server(error) && losses == losses_) {
        lose(error, Loss::refused);
    }
}

/// Where the server has lost its scripts, they are loaded again, once, however many calls have met
/// that, and the calls sent again behind them.
void Connection::resend(PendingCall& record, bool load)
{
    Call& call = *record.call;
    record.sent_again = true;
    if (usable() && load && handshake_.done()) {
        contained(*this, [this] { write_handshake(handshake_.load_scripts()); });
    }
    const bool sendable = usable();
    if (!sendable) {
        record.release();
        records_.give_back(record);
    }
    if (!sendable || !send(record)) {
        call.on_failure(Failure::error_reply);
    }
}

/// Before the state changes: whether the next attempt goes to another address of the server's name.
bool Connection::goes_elsewhere(Loss loss) noexcept
try {
    const bool useless = state_ == State::connecting || loss == Loss::refused;
    return useless && loss != Loss::starved && owner_.address_failed(address_);
} catch (const std::exception&) {
    return false;  // out of memory: the same address again
}

/// Gives the context up, unless hiredis frees it itself, and connects again, at once if it was
/// good, or if the server's name has another address. Its calls are sent again, or fail.
void Connection::lose(std::string_view reason, Loss loss, Context whose) noexcept
{
    ++losses_;
    const bool silent = loss == Loss::silent;
    redisAsyncContext* context = std::exchange(context_, nullptr);
    tls_ = nullptr;
    CallQueue lost = take_all_calls();
    deadline_alarm_.stop();
    const bool good = proven();
    if (good && loss == Loss::failed) {
        loss = Loss::good;
    } else if (answers_none(lost) && (loss == Loss::failed || loss == Loss::silent)) {
        loss = Loss::refused;
    }
    const bool elsewhere = goes_elsewhere(loss);
    if (elsewhere) {
        loss = Loss::elsewhere;
    }
    connect_again(good || elsewhere, silent || reason.starts_with("BUSY"));

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

void Connection::send_again(CallQueue& lost) noexcept
{
    while (!lost.empty()) {
        PendingCall& record = lost.pop();
        const milliseconds deadline = record.deadline;
        Call* call = record.release();
        records_.give_back(record);
        if (call != nullptr && !owner_.send_again(*call, deadline)) {
            call->on_failure(Failure::connection);
        }
    }
}

void Connection::close() noexcept
{
    ++losses_;
    CallQueue lost = take_all_calls();
    state_ = State::closed;
    connect_timer_->stop();
    deadline_alarm_.stop();
    give_up_context();
    fail_all(lost, records_, Failure::connection);
}

}  // namespace ratelimit::redis
