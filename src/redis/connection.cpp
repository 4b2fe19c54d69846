#include "redis/connection.h"

#include <cstring>
#include <stdexcept>
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

/// A context's data is its connection, or null once the connection has given it up: what hiredis
/// still calls then is of no interest.
struct Connection::Hooks {
    static Connection* of(const redisAsyncContext* context) noexcept
    {
        return static_cast<Connection*>(context->data);
    }

    static void on_connect(const redisAsyncContext* context, int status) noexcept
    {
        Connection* connection = of(context);
        if (connection == nullptr) {
            return;
        }
        if (status != REDIS_OK) {
            // hiredis frees the context when this returns.
            connection->lose(context->errstr, Loss::freed_by_hiredis);
            return;
        }
        contained(*connection, [connection] { connection->set_up(); });
    }

    static void on_disconnect(const redisAsyncContext* context, int) noexcept
    {
        Connection* connection = of(context);
        if (connection == nullptr) {
            return;
        }
        std::string reason;
        try {
            reason = connection->reason_of(*context);
        } catch (const std::exception&) {
            // Out of memory: lost without a reason.
        }
        connection->lose(reason.empty() ? "connection closed" : reason, Loss::freed_by_hiredis);
    }

    static void on_introduction(redisAsyncContext* context, void* reply, void* digest) noexcept
    {
        Connection* connection = of(context);
        // A null reply is a lost connection, which on_disconnect deals with.
        if (connection != nullptr && reply != nullptr) {
            contained(*connection, [=] {
                connection->introduced(
                    *static_cast<const redisReply*>(reply), static_cast<Digest*>(digest));
            });
        }
    }

    static void on_answer(redisAsyncContext* context, void* reply, void*) noexcept
    {
        Connection* connection = of(context);
        if (connection != nullptr && reply != nullptr) {
            contained(
                *connection, [=] { connection->answered(*static_cast<const redisReply*>(reply)); });
        }
    }
};

/// What TLS says of a connection that is being lost, or hiredis.
std::string Connection::reason_of(const redisAsyncContext& context) const
{
    const std::string said = tls_ == nullptr ? "" : TlsContext::failure(tls_);
    return said.empty() ? context.errstr : said;
}

template <class Body>
void Connection::contained(Connection& connection, Body&& body) noexcept
{
    try {
        body();
    } catch (const std::exception& error) {
        connection.lose(error.what());
    }
}

Connection::Connection(
    EventLoop& loop, const ClientOptions& options, const ScriptRegistry& scripts,
    RecordPool& records, ConnectionOwner& owner)
    : loop_(loop),
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

void Connection::begin()
{
    const Endpoint& server = options_.server;
    redisOptions options{};
    if (server.unix_path.empty()) {
        REDIS_OPTIONS_SET_TCP(&options, server.host.c_str(), server.port);
    } else {
        REDIS_OPTIONS_SET_UNIX(&options, server.unix_path.c_str());
    }
    context_ = redisAsyncConnectWithOptions(&options);
    if (context_ == nullptr) {
        lose("out of memory");
        return;
    }
    if (context_->err != 0) {
        const std::string reason = context_->errstr;
        lose(reason);
        return;
    }
    context_->data = this;
    if (!loop_.attach(*context_)) {
        lose("no connection or memory left for it");
        return;
    }
    redisAsyncSetConnectCallback(context_, Hooks::on_connect);
    redisAsyncSetDisconnectCallback(context_, Hooks::on_disconnect);
}

void Connection::command(std::string_view text, Digest* digest)
{
    if (redisAsyncFormattedCommand(
            context_, Hooks::on_introduction, digest, text.data(), text.size())
        != REDIS_OK) {
        throw std::runtime_error("out of memory");
    }
    ++introductions_;
}

/// The first commands of a connection, which leave together.
void Connection::set_up()
{
    if (options_.server.unix_path.empty()) {
        redisEnableKeepAlive(&context_->c);
    }
    if (options_.tls != nullptr) {
        std::string reason;
        tls_ = options_.tls->start(context_->c, reason);
        if (tls_ == nullptr) {
            lose(reason);
            return;
        }
    }
    introductions_ = 0;
    if (!options_.password.empty()) {
        if (options_.username.empty()) {
            command(plain_command({ "AUTH", options_.password }));
        } else {
            command(plain_command({ "AUTH", options_.username, options_.password }));
        }
    }
    if (options_.database != 0) {
        command(plain_command({ "SELECT", std::to_string(options_.database) }));
    }
    load_scripts();
    if (introductions_ == 0) {
        // No script: nothing to ask, but whether anybody is there.
        command(plain_command({ "PING" }));
    }
}

void Connection::load_scripts()
{
    for (std::size_t i = 0; i < scripts_.size(); ++i) {
        command(
            plain_command({ "SCRIPT", "LOAD", scripts_.text(static_cast<ScriptId>(i)) }),
            &digests_[i]);
    }
}

/// A reply to one of the first commands, or to SCRIPT LOAD, whose digest it is.
void Connection::introduced(const redisReply& reply, Digest* digest)
{
    last_reply_ = loop_.now();
    if (reply.type == REDIS_REPLY_ERROR) {
        lose(text_of(reply));
        return;
    }
    if (digest != nullptr) {
        if (reply.type != REDIS_REPLY_STRING || reply.len != digest->size()) {
            lose("SCRIPT LOAD returned no digest");
            return;
        }
        std::memcpy(digest->data(), reply.str, reply.len);
    }
    --introductions_;
    if (introductions_ == 0 && state_ == State::connecting) {
        state_ = State::ready;
        connect_timer_->stop();
        owner_.connection_ready(*this);
    }
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
    deadline_timer_->on_exit(Timer::OnExit::wait);
    return true;
}

bool Connection::write(const PendingCall& record) noexcept
try {
    const Call& call = *record.call;
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
    owner_.call_refused(error);
    if (call != nullptr) {
        call->on_failure(Failure::error_reply);
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
    if (context != nullptr) {
        context->data = nullptr;
        if (loss != Loss::freed_by_hiredis) {
            redisAsyncFree(context);
        }
    }
    fail_all(lost, records_, Failure::connection);
}

void Connection::close() noexcept
{
    ++losses_;
    redisAsyncContext* context = std::exchange(context_, nullptr);
    CallQueue lost = std::exchange(in_flight_, {});
    state_ = State::closed;
    connect_timer_->stop();
    deadline_timer_->stop();
    if (context != nullptr) {
        context->data = nullptr;
        redisAsyncFree(context);
    }
    fail_all(lost, records_, Failure::connection);
}

}  // namespace ratelimit::redis
