#include "redis/connection.h"
#include "redis/connection_hooks.h"

#include <utility>

#include <hiredis/async.h>
#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

std::string_view text_of(const redisReply& reply) noexcept
{
    return { reply.str, reply.len };
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
      digests_(scripts.size())
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
        finish_move();
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
    CallQueue forgotten = std::exchange(in_flight_, {});
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
    if (!write(record)) {
        record.release();
        records_.give_back(record);
        return false;
    }
    record.sent = loop_.now();
    in_flight_.push(record);
    if (in_flight_.size() == 1) {
        last_reply_ = record.sent;
    }
    // It may run for a later one: the stall bound of calls that have timed out.
    if (!deadline_timer_->running() || deadline_due_ > record.deadline) {
        watch_until(record.deadline);
    }
    if (record.call->delays_exit()) {
        deadline_timer_->on_exit(Timer::OnExit::wait);
    }
    return true;
}

bool Connection::write(const PendingCall& record) noexcept
try {
    static constexpr std::string_view asking = "*1\r\n$6\r\nASKING\r\n";
    const Call& call = *record.call;
    if (record.asking
        && redisAsyncFormattedCommand(context_, nullptr, nullptr, asking.data(), asking.size())
            != REDIS_OK) {
        return false;
    }
    if (const auto text = call.command(); !text.empty()) {
        return redisAsyncFormattedCommand(
                   context_, Hooks::on_answer, nullptr, text.data(), text.size())
            == REDIS_OK;
    }
    const auto& digest = digests_[static_cast<std::size_t>(call.script())];
    arguments_.begin({ digest.data(), digest.size() }, call.argument_count());
    call.write(arguments_);
    const std::string_view text = arguments_.text();
    return redisAsyncFormattedCommand(context_, Hooks::on_answer, nullptr, text.data(), text.size())
        == REDIS_OK;
} catch (const std::exception&) {
    return false;
}

/// Replies come in the order of the calls: this one is the oldest's.
void Connection::answered(const redisReply& reply)
{
    if (in_flight_.empty()) {
        lose("a reply that nobody asked for");
        return;
    }
    last_reply_ = loop_.now();
    PendingCall& record = in_flight_.pop();
    if (in_flight_.empty()) {
        deadline_timer_->on_exit(Timer::OnExit::ignore);
    }
    if (reply.type == REDIS_REPLY_ERROR) {
        answered_with_error(record, text_of(reply));
        return;
    }
    // Only now: one that takes scripts and refuses calls is not to be asked again at once.
    if (!record.timed_out) {
        backoff_.reset();
        owner_.call_answered();
    }
    Call* call = record.release();
    records_.give_back(record);
    if (call != nullptr) {
        call->on_reply(reply);
    }
}

void Connection::answered_with_error(PendingCall& record, std::string_view error)
{
    if (error.starts_with("NOSCRIPT") && record.call != nullptr && !record.sent_again) {
        resend(record);
        return;
    }
    const unsigned losses = losses_;
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
    if (leaves_server(error) && losses == losses_) {
        lose(error, Loss::refused);
    }
}

/// The server has lost its scripts: they are loaded again, once, however many calls have met that,
/// and the calls sent again behind them.
void Connection::resend(PendingCall& record)
{
    Call& call = *record.call;
    record.sent_again = true;
    try {
        if (introductions_ == 0) {
            load_scripts();
        }
    } catch (const std::exception&) {
        record.release();
        records_.give_back(record);
        call.on_failure(Failure::error_reply);
        return;
    }
    if (!send(record)) {
        call.on_failure(Failure::error_reply);
    }
}

/// Gives the context up, unless hiredis frees it itself, and fails its calls. Then, unless close is
/// the reason, it pauses before the next attempt.
void Connection::lose(std::string_view reason, Loss loss) noexcept
{
    ++losses_;
    redisAsyncContext* context = std::exchange(context_, nullptr);
    tls_ = nullptr;
    CallQueue lost = std::exchange(in_flight_, {});
    deadline_timer_->stop();
    introductions_ = 0;
    state_ = State::pausing;
    connect_timer_->start(backoff_.next());

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
    CallQueue lost = std::exchange(in_flight_, {});
    state_ = State::closed;
    connect_timer_->stop();
    deadline_timer_->stop();
    give_up_context();
    fail_all(lost, records_, Failure::connection);
}

}  // namespace ratelimit::redis
