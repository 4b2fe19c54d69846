#include "redis/connection.h"
#include "redis/connection_hooks.h"

#include <algorithm>
#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

std::string_view text_of(const redisReply& reply) noexcept
{
    return { reply.str, reply.len };
}

/// Empty: it is not a reply with so many parts of so many bytes.
std::string_view part_of(
    const redisReply& reply, std::size_t part, std::size_t parts, std::size_t bytes) noexcept
{
    if (reply.type != REDIS_REPLY_STRING || reply.len != parts * bytes) {
        return {};
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
      scripts_(scripts),
      records_(records),
      owner_(owner),
      connect_timer_(loop.make_timer([this] { fire(); })),
      deadline_timer_(loop.make_timer([this] { contained(*this, [this] { check_deadlines(); }); })),
      backoff_(std::random_device{}()),
      digests_(scripts.size()),
      together_(scripts.size()),
      turn_end_(loop.make_turn_end([this] { write_gathered(); }))
{
    connect_timer_->on_exit(Timer::OnExit::ignore);
    deadline_timer_->on_exit(Timer::OnExit::ignore);
}

Connection::~Connection()
{
    close();
}

void Connection::fire() noexcept
{
    if (state_ == State::connecting) {
        lose("timed out while connecting");
    } else {
        contained(*this, [this] { connect(); });
    }
}

void Connection::connect()
{
    state_ = State::connecting;
    connect_timer_->start(options_.connect_timeout);
    begin();
}

void Connection::move()
{
    if (state_ == State::closed) {
        return;
    }
    if (state_ == State::ready || state_ == State::moving) {
        state_ = State::moving;
        write_gathered();  // and moves, if nobody waits
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
    deadline_timer_->stop();
    introductions_ = 0;
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

/// Calls that have been written, and are answered by one reply.
void Connection::put_in_flight(CallQueue& sent) noexcept
{
    const milliseconds now = loop_.now();
    milliseconds due = milliseconds::max();
    bool delays_exit = false;
    if (in_flight_.empty()) {
        last_reply_ = now;
    }
    sent.front()->joint = static_cast<unsigned>(sent.size());
    sent.front()->written = std::chrono::steady_clock::now();
    owner_.command_sent();
    while (!sent.empty()) {
        PendingCall& record = sent.pop();
        record.sent = now;
        due = std::min(due, record.deadline);
        delays_exit = delays_exit || record.call->delays_exit();
        in_flight_.push(record);
    }
    // It may run for a later one: the stall bound of calls that have timed out.
    if (!deadline_timer_->running() || deadline_due_ > due) {
        watch_until(due);
    }
    if (delays_exit) {
        deadline_timer_->on_exit(Timer::OnExit::wait);
    }
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
    const auto& digest = digests_[static_cast<std::size_t>(call.script())];
    arguments_.begin({ digest.data(), digest.size() }, call.argument_count());
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
    last_reply_ = loop_.now();
    const auto written = in_flight_.front()->written;
    CallQueue answered;
    bool in_time = false;
    for (unsigned left = in_flight_.front()->joint; left != 0; --left) {
        PendingCall& record = in_flight_.pop();
        in_time = in_time || (!record.timed_out && record.deadline >= last_reply_);
        answered.push(record);
    }
    if (in_flight_.empty()) {
        deadline_timer_->on_exit(Timer::OnExit::ignore);
    }
    if (reply.type == REDIS_REPLY_ERROR) {
        answered_with_error(answered, reply.len == 0 ? "ERR" : unwrapped(text_of(reply)));
        return;
    }
    // Only now: one that takes scripts and refuses calls is not to be asked again at once.
    if (in_time) {
        backoff_.reset();
        owner_.call_answered(std::chrono::steady_clock::now() - written);
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
            call->on_part(part_of(reply, part, parts, joint->reply_bytes));
        } else {
            call->on_reply(reply);
        }
    }
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
    bool sendable = state_ == State::ready || state_ == State::moving;
    try {
        if (sendable && load && introductions_ == 0) {
            load_scripts();
        }
    } catch (const std::exception&) {
        sendable = false;
    }
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
    return useless && owner_.address_failed(address_);
} catch (const std::exception&) {
    return false;  // out of memory: the same address again
}

/// Gives the context up, unless hiredis frees it itself, and fails its calls. Then, unless close is
/// the reason, it pauses before the next attempt.
void Connection::lose(std::string_view reason, Loss loss) noexcept
{
    ++losses_;
    redisAsyncContext* context = std::exchange(context_, nullptr);
    tls_ = nullptr;
    CallQueue lost = take_all_calls();
    deadline_timer_->stop();
    introductions_ = 0;
    elsewhere_ = goes_elsewhere(loss);
    state_ = State::pausing;
    connect_timer_->start(elsewhere_ ? milliseconds{ 1 } : backoff_.next());

    try {
        owner_.connection_lost(*this, reason, loss == Loss::refused);
    } catch (const std::exception&) {
        // Only the report of it was lost.
    }
    if (loss != Loss::freed_by_hiredis) {
        free_context(context);
    } else if (context != nullptr) {
        context->data = nullptr;
    }
    fail_all(lost, records_, Failure::connection);
}

void Connection::close() noexcept
{
    ++losses_;
    CallQueue lost = take_all_calls();
    state_ = State::closed;
    connect_timer_->stop();
    deadline_timer_->stop();
    give_up_context();
    fail_all(lost, records_, Failure::connection);
}

}  // namespace ratelimit::redis
