#include "redis/server.h"

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
      breaker_(options.breaker_failures, options.breaker_open),
      waiting_(loop, records_, [this](unsigned checks) { call_timed_out(checks); }),
      look_up_timer_(loop.make_timer([this] { look_up(); }))
{
    look_up_timer_->on_exit(Timer::OnExit::ignore);
    for (int i = 0; i < options_.connections; ++i) {
        connections_.push_back(
            std::make_unique<Connection>(loop, endpoint_, options_, scripts, records_, *this));
    }
}

Server::~Server()
{
    close();
}

void Server::start()
{
    look_up();
    finding_ = endpoint_.host.empty() && lookup_ != nullptr;
    if (!finding_) {
        connect();
    }
}

void Server::connect()
{
    finding_ = false;
    for (const auto& connection : connections_) {
        connection->connect();
    }
}

bool Server::send(Call& call)
{
    if (call.travel.expires.count() == 0) {
        call.travel.expires = loop_.now() + options_.connect_timeout + options_.timeout;
    }
    if (!breaker_.allows(loop_.now())) {
        return false;
    }
    Connection* best = nullptr;
    bool connecting = finding_;
    for (const auto& connection : connections_) {
        connecting = connecting || connection->connecting();
        if (connection->ready()
            && (best == nullptr || connection->in_flight() < best->in_flight())) {
            best = connection.get();
        }
    }
    if (best != nullptr) {
        return send_on(*best, call);
    }
    if (!connecting) {
        return false;
    }
    waiting_.add(call, call.travel.expires);
    return true;
}

bool Server::send_on(Connection& connection, Call& call)
{
    PendingCall& record = records_.take();
    record.hold(call);
    record.asking = call.travel.asking;
    record.deadline = std::min(loop_.now() + options_.timeout, call.travel.expires);
    return connection.send(record);
}

void Server::probe()
{
    const bool silent = !any([since = loop_.now() - most_silence](const Connection& connection) {
        return connection.ready() && connection.last_reply() > since;
    });
    // One that refuses checks would answer this all the same.
    if ((breaker_.open() || silent) && !refuses_checks_ && ready() && !probe_.pending()) {
        probe_.travel = {};
        send(probe_);
    }
}

void Server::close() noexcept
{
    look_up_timer_->stop();
    lookup_.reset();
    for (const auto& connection : connections_) {
        connection->close();
    }
    waiting_.fail_all(Failure::connection);
}

/// Its last connection is lost: it may have moved.
void Server::look_up_soon() noexcept
{
    if (look_up_timer_->running()) {
        look_up_timer_->start(look_up_pause);
    }
}

void Server::look_up() noexcept
try {
    if (endpoint_.host_name.empty() || is_numeric_address(endpoint_.host_name)) {
        return;
    }
    lookup_ = loop_.look_up(
        endpoint_.host_name, [this](const Addresses& addresses) { looked_up(addresses); });
} catch (const std::exception&) {
    look_up_timer_->start(look_up_pause);  // out of memory
}

void Server::looked_up(const Addresses& addresses) noexcept
try {
    look_up_timer_->start(std::max(addresses.valid, look_up_pause));
    found_ = !addresses.all.empty();
    const bool moved = found_ && addresses_.found(addresses.all);
    if (finding_) {
        connect();
    } else if (moved) {
        reconnect();
    }
} catch (const std::exception&) {
    // Out of memory: the next look-up finds it.
}

void Server::announced_at(const std::string& address)
{
    const bool other = !address.empty() && address != endpoint_.host;
    if (other && !finding_ && !found_ && addresses_.found({ address })) {
        reconnect();
    }
}

/// At the address that is in use now, when the calls in flight have ended.
void Server::reconnect()
{
    for (const auto& connection : connections_) {
        connection->move();
    }
}

template <class Predicate>
bool Server::any(Predicate&& predicate) const
{
    return std::any_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
        return predicate(*connection);
    });
}

bool Server::ready() const noexcept
{
    return any([](const Connection& connection) { return connection.ready(); });
}

bool Server::idle() const noexcept
{
    return waiting_.empty()
        && !any([](const Connection& connection) { return connection.in_flight() != 0; });
}

ErrorFate Server::fate_of(Call* call, std::string_view error) noexcept
{
    return owner_.fate_of(*this, call, error);
}

void Server::connection_ready(Connection& connection)
{
    stats_.reconnects += connection.times_ready() > 1 ? 1 : 0;
    addresses_.worked();
    if (std::exchange(lost_, false)) {
        owner_.server_reconnected(*this);
    }
    // One that let itself be set up is no failure, unless it refused calls after that before.
    if (!refusing_) {
        breaker_.succeeded();
        report_up();
    }
    waiting_.release([&](Call& call) { return connection.ready() && send_on(connection, call); });
}

void Server::connection_lost(Connection& lost, std::string_view reason, bool refused)
{
    ++stats_.connection_errors;
    refusing_ = refusing_ || refused;
    if (lost.connecting()) {
        return;  // to another address of its name
    }
    lost_ = true;
    note_failure(reason);
    if (ready()) {
        return;
    }
    report_down(reason);
    look_up_soon();
    if (!any([](const Connection& other) { return other.connecting(); })) {
        waiting_.release([this](Call& call) { return owner_.take_back(*this, call); });
    }
}

void Server::call_refused(std::string_view error, unsigned checks) noexcept
try {
    stats_.error_replies += checks;
    refuses_checks_ = true;
    note_failure(error, checks);
    const auto word = error.substr(0, error.find(' '));
    last_error_at_ = loop_.now();
    if (told_errors_.size() < most_told_errors
        && std::find(told_errors_.begin(), told_errors_.end(), word) == told_errors_.end()) {
        told_errors_.emplace_back(word);
        owner_.error_reply(*this, error);
    }
} catch (const std::exception&) {
    // Only the report of it was lost.
}

void Server::call_timed_out(unsigned checks) noexcept
{
    stats_.timeouts += checks;
    refuses_checks_ = false;
    note_failure(describe(Failure::timeout), checks);
}

void Server::call_answered(std::chrono::steady_clock::duration took) noexcept
{
    stats_.answered(std::chrono::duration_cast<microseconds>(took));
    breaker_.succeeded();
    refusing_ = false;
    refuses_checks_ = false;
    report_up();
    if (!told_errors_.empty() && loop_.now() - last_error_at_ >= error_pause) {
        told_errors_.clear();
    }
}

void Server::report_up() noexcept
{
    if (!up_) {
        up_ = true;
        down_reported_ = false;
        owner_.server_up(*this);
    }
}

/// A breaker that opens is a server that is away.
void Server::note_failure(std::string_view reason, unsigned checks) noexcept
{
    if (breaker_.failed(loop_.now(), checks)) {
        report_down(reason);
    }
}

void Server::report_down(std::string_view reason) noexcept
{
    up_ = false;
    if (!down_reported_) {
        down_reported_ = true;
        owner_.server_down(*this, reason);
    }
}

}  // namespace ratelimit::redis
