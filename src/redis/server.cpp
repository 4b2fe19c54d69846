#include "redis/server.h"

#include "redis/error_table.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

Server::Server(
    EventLoop& loop, Endpoint endpoint, const ServerOptions& options, const ScriptRegistry& scripts,
    ServerOwner& owner)
    : loop_(loop),
      endpoint_(std::move(endpoint)),
      addresses_(endpoint_),
      options_(options),
      owner_(owner),
      breaker_(options.breaker_failures),
      lateness_(options.breaker_failures),
      waiting_(loop, [this](unsigned checks) { waited_in_vain(checks); }),
      look_up_alarm_(loop, [this] { look_up(); }),
      probe_timer_(loop.make_timer([this] { probe_silent(); }))
{
    for (int i = 0; i < options_.connections; ++i) {
        connections_.push_back(
            std::make_unique<Connection>(loop, endpoint_, options_, scripts, clock_, *this));
    }
}

void Server::start()
{
    state_ = State::starting;
    started_ = loop_.now();
    look_up();
    if (!waits_for_address()) {
        connect();
    }
}

/// `again`: it waits for a connection that is being made, since others that seem ready may be lost,
/// too.
bool Server::accept(Call& call, bool again)
{
    if (breaker_.open()) {
        return false;
    }
    if (Connection* connection = again && reconnecting() ? nullptr : next_connection()) {
        return send_on(*connection, call);
    }
    if (!connecting()) {
        return false;
    }
    waiting_.add(call);
    return true;
}

/// The connection with an unfinished batch, else the one with the fewest calls in flight. Null:
/// none is ready.
Connection* Server::next_connection() noexcept
{
    if (filling_ != nullptr && filling_->ready() && filling_->filling()) {
        return filling_;
    }
    filling_ = nullptr;
    for (const auto& connection : connections_) {
        if (connection->ready()
            && (filling_ == nullptr || connection->in_flight() < filling_->in_flight())) {
            filling_ = connection.get();
        }
    }
    return filling_;
}

/// Sends the call again before it expires: by this server, or by the owner. A call that has expired
/// lost its time to a stop of this process, and gets the whole timeout. Redis may execute a call
/// twice at most.
bool Server::send_again(Call& call, bool had_left) noexcept
try {
    if (had_left && (call.routing.sent_again || !call.repeatable)) {
        return false;
    }
    call.routing.sent_again = call.routing.sent_again || had_left;
    if (const milliseconds now = loop_.now(); call.routing.expires <= now) {
        call.routing.expires = now + options_.timeout;
    }
    return accept(call, true) || owner_.reroute(call);
} catch (const std::exception&) {
    return false;
}

bool Server::send_on(Connection& connection, Call& call)
{
    auto& record = *new PendingCall;
    record.attach(call);
    record.shard = call.routing.shard.value_or(0);
    record.kind = &call == &probe_ ? PendingCall::Kind::probe : PendingCall::Kind::call;
    return connection.send(record);
}

void Server::probe()
{
    if (!any([since = loop_.now() - most_silence](const Connection& connection) {
            return connection.ready() && connection.last_reply() > since;
        })) {
        send_probe();
    }
}

void Server::send_probe() noexcept
try {
    Connection* connection = next_connection();
    if (connection != nullptr && !probe_.pending()) {
        probe_.routing = { .expires = loop_.now() + options_.timeout };
        send_on(*connection, probe_);
    }
} catch (const std::exception&) {
    // Out of memory: wait for the next probe.
}

/// While the breaker is open, only probes are sent.
void Server::probe_silent() noexcept
{
    if (breaker_.open()) {
        send_probe();
        probe_timer_->start(probe_pause);
    }
}

void Server::close() noexcept
{
    look_up_alarm_.stop();
    probe_timer_->stop();
    lookup_.reset();
    for (const auto& connection : connections_) {
        connection->close();
    }
    waiting_.end_all();
}

void Server::look_up() noexcept
try {
    if (endpoint_.host_name.empty() || is_numeric_address(endpoint_.host_name)) {
        return;
    }
    const auto done = [this](const Addresses& addresses) { looked_up(addresses); };
    lookup_ = follows_name() ? loop_.look_up_unknown(endpoint_.host_name, done)
                             : loop_.look_up(endpoint_.host_name, done);
} catch (const std::exception&) {
    look_up_alarm_.set(loop_.now() + look_up_pause);  // out of memory
}

void Server::looked_up(const Addresses& addresses) noexcept
try {
    const bool first = looks_up_first();
    look_up_alarm_.set(loop_.now() + std::max(addresses.valid, look_up_pause));
    const bool moved = !addresses.all.empty() && addresses_.found(addresses.all);
    if (moved || (first && !reconnecting())) {
        connect();
    }
} catch (const std::exception&) {
    // Out of memory: the next look-up tries again.
}

void Server::announced_at(const std::string& address)
{
    if (!address.empty() && addresses_.announce(address)) {
        connect();
    }
}

/// Connects to the current address when the calls in flight have ended.
void Server::connect()
{
    for (const auto& connection : connections_) {
        connection->connect();
    }
}

bool Server::idle() const noexcept
{
    return waiting_.empty()
        && !any([](const Connection& connection) { return !connection.idle(); });
}

bool Server::address_failed(
    const Connection& connection, std::string_view reason, Loss loss) noexcept
try {
    const std::string_view address = connection.address();
    // All connections use one address, since another server has other counts. Where the breaker is
    // open, those that are ready are silent.
    const auto works = [address](const Connection& other) {
        return other.ready() && other.address() == address;
    };
    const bool in_use = address == endpoint_.host;
    if ((!breaker_.open() && any(works)) || !addresses_.failed(address)) {
        return false;
    }
    // It counts once, however many connections were at it.
    if (in_use && is_silence(loss)) {
        endpoint_.tried = address;
        note_silence(connection.attempted(), reason);
    }
    return true;
} catch (const std::exception&) {
    return false;  // out of memory: the same address is tried again
}

void Server::connection_ready(Connection& connection)
{
    stats_.reconnects += connection.times_ready() > 1 ? 1 : 0;
    endpoint_.tried = connection.address();
    for (const auto& one : connections_) {
        if (one->ready() && one->address() != endpoint_.host) {
            one->connect();  // all use one address
        }
    }
    const bool moved = connection.take_moved();
    if (std::exchange(lost_, false) || moved) {
        owner_.server_reconnected(*this);
    }
    breaker_.answered();
    report_up(false);
    if (connection.ready()) {  // otherwise calls wait for the address in use
        waiting_.release(
            [&](Call& call) { return connection.ready() && send_on(connection, call); });
    }
}

void Server::connection_lost(
    Connection& connection, std::string_view reason, Loss loss, bool elsewhere)
{
    ++stats_.connection_errors;
    lost_ = lost_ || !elsewhere || connection.times_ready() > 0;
    if (loss == Loss::good || elsewhere) {
        return;  // still up, unless the attempt that follows fails
    }
    endpoint_.tried = connection.address();
    if (is_silence(loss)) {
        note_silence(connection.attempted(), reason);
        if (looks_up_first()) {
            return;
        }
    }
    const auto serves = [&](const Connection& other) {
        return other.ready() || (&other != &connection && other.connecting());
    };
    // Others that seem ready may have been lost with it, too: calls wait for one that is new.
    if (ready() && !reconnecting()) {
        waiting_.release([this](Call& call) { return send(call); });
    }
    if (!any(serves) && (loss != Loss::refused || !rule_of(reason).reads)) {
        report_down(reason, loss == Loss::refused ? State::refusing : State::away);
    }
    if (away() || !ready()) {
        // The address may have changed. Connections may be lost more often than look_up_pause: an
        // earlier look-up is not postponed.
        if (look_up_alarm_.running()) {
            look_up_alarm_.set_no_later_than(loop_.now() + look_up_pause);
        } else if (follows_name() && lookup_ == nullptr) {
            look_up();
        }
    }
    if (!connecting()) {
        waiting_.release([this](Call& call) { return owner_.reroute(call); });
    }
}

/// An error is a reply: the breaker is for silence.
void Server::call_refused(Call* call, std::string_view error) noexcept
{
    breaker_.answered();
    const ErrorRule& rule = rule_of(error);
    if (call == nullptr && rule.loads) {
        report_up(false);  // no error to count: no caller waits
        return;
    }
    if (call != nullptr && !rule.executed) {
        call->routing.written = false;
    }
    const ErrorClass kind = owner_.classify_error(*this, call, error);
    if (kind == ErrorClass::refused) {
        note_error(error, call == nullptr ? 1 : call->request_count());
    }
    if (call != nullptr && kind != ErrorClass::redirected) {
        call->ended(kind == ErrorClass::slot_migrating ? Fate::one_by_one : rule.fate());
    }
}

void Server::note_error(std::string_view error, unsigned checks) noexcept
{
    stats_.error_replies += checks;
    if (errors_.add(error, loop_.now())) {
        owner_.error_reply(*this, error);
    }
}

/// Attempts to connect count by themselves, when they fail. A look-up may take longer than many
/// calls: it counts once in each connect_timeout.
void Server::waited_in_vain(unsigned checks) noexcept
{
    stats_.timeouts += checks;
    const milliseconds began = loop_.now() - options_.connect_timeout;
    if (waits_for_address() && began >= started_) {
        note_silence(began, "its name is not looked up in time");
    }
}

void Server::call_timed_out(unsigned checks, milliseconds sent) noexcept
{
    stats_.timeouts += checks;
    note_silence(sent, describe(Fate::overdue));
    if (breaker_.open()) {
        lateness_.answered();  // reported as away
    } else if (lateness_.silent(sent, loop_.now())) {
        note_error("too late, the fail mode decides", 0);
    }
}

void Server::command_answered(bool probe, std::optional<microseconds> took) noexcept
{
    breaker_.answered();
    if (took) {
        lateness_.answered();
        stats_.answered(*took);
    }
    // A server may accept connections and answer probes, but refuse all calls.
    if (probe && state_ == State::refusing) {
        return;
    }
    addresses_.worked();
    report_up(true);
}

/// `answered`: a call. A handshake is no proof if the server has refused calls.
void Server::report_up(bool answered) noexcept
{
    if ((answered || state_ != State::refusing) && std::exchange(state_, State::up) != State::up) {
        owner_.server_up(*this);
    }
}

/// If this opens the breaker, the server is reported down.
void Server::note_silence(milliseconds began, std::string_view reason) noexcept
{
    if (breaker_.silent(began, loop_.now())) {
        report_down(reason);
        probe_timer_->start(probe_pause);
    }
}

void Server::report_down(std::string_view reason, State state) noexcept
{
    const bool reported = away();
    // A server that refuses calls stays in this state until it replies to one.
    state_ = state_ == State::refusing ? state_ : state;
    if (!reported) {
        owner_.server_down(*this, reason);
    }
}

}  // namespace ratelimit::redis
