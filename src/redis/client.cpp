#include "redis/client.h"

#include "redis/circuit_breaker.h"
#include "redis/connection.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

/// The connections, the calls that wait for one to be ready, and what the owner has been told.
class Client::State final : public ConnectionOwner {
public:
    State(
        EventLoop& loop, ClientOptions options, const ScriptRegistry& scripts, ClientEvents& events)
        : loop_(loop),
          options_(std::move(options)),
          events_(events),
          breaker_(options_.breaker_failures, options_.breaker_open),
          waiting_timer_(loop.make_timer([this] { fail_overdue(); }))
    {
        waiting_timer_->on_exit(Timer::OnExit::ignore);
        for (int i = 0; i < options_.connections; ++i) {
            connections_.push_back(
                std::make_unique<Connection>(loop, options_, scripts, records_, *this));
        }
    }

    void start()
    {
        for (const auto& connection : connections_) {
            connection->connect();
        }
    }

    bool send(Call& call)
    {
        if (!breaker_.allows(loop_.now())) {
            return false;
        }
        Connection* best = nullptr;
        bool connecting = false;
        for (const auto& connection : connections_) {
            connecting = connecting || connection->connecting();
            if (connection->ready()
                && (best == nullptr || connection->in_flight() < best->in_flight())) {
                best = connection.get();
            }
        }
        if (best == nullptr && !connecting) {
            return false;
        }
        PendingCall& record = records_.take();
        record.hold(call);
        if (best == nullptr) {
            wait(record);
        } else {
            return send_on(*best, record);
        }
        return true;
    }

    void close() noexcept
    {
        for (const auto& connection : connections_) {
            connection->close();
        }
        fail_waiting();
    }

    void connection_ready(Connection& connection) override
    {
        // One that let itself be set up is no failure, unless it refused calls after that before.
        if (!refusing_) {
            breaker_.succeeded();
            report_up();
        }
        waiting_timer_->stop();
        CallQueue waiting = std::exchange(waiting_, {});
        while (!waiting.empty()) {
            PendingCall& record = waiting.pop();
            if (record.call == nullptr) {
                records_.give_back(record);  // forgotten meanwhile
                continue;
            }
            Call& call = *record.call;
            const bool sent = connection.ready() && send_on(connection, record);
            if (!sent) {
                call.on_failure(Failure::connection);
            }
        }
    }

    void connection_lost(Connection&, std::string_view reason, bool refused) override
    {
        refusing_ = refusing_ || refused;
        note_failure(reason);
        if (any([](const Connection& other) { return other.ready(); })) {
            return;
        }
        report_down(reason);
        if (!any([](const Connection& other) { return other.connecting(); })) {
            fail_waiting();
        }
    }

    void call_refused(std::string_view error) noexcept override
    try {
        note_failure(error);
        const auto word = error.substr(0, error.find(' '));
        last_error_at_ = loop_.now();
        if (told_errors_.size() < most_told_errors
            && std::find(told_errors_.begin(), told_errors_.end(), word) == told_errors_.end()) {
            told_errors_.emplace_back(word);
            events_.error_reply(options_.server, error);
        }
    } catch (const std::exception&) {
        // Only the report of it was lost.
    }

    void call_timed_out() noexcept override { note_failure(describe(Failure::timeout)); }

    void call_answered() noexcept override
    {
        breaker_.succeeded();
        refusing_ = false;
        report_up();
        if (!told_errors_.empty() && loop_.now() - last_error_at_ >= error_pause) {
            told_errors_.clear();
        }
    }

private:
    static constexpr std::size_t most_told_errors = 16;
    static constexpr milliseconds error_pause{ 10'000 };

    void report_up() noexcept
    {
        if (!up_) {
            up_ = true;
            down_reported_ = false;
            events_.server_up(options_.server);
        }
    }

    /// A breaker that opens is a server that is away.
    void note_failure(std::string_view reason) noexcept
    {
        if (breaker_.failed(loop_.now())) {
            report_down(reason);
        }
    }

    void report_down(std::string_view reason) noexcept
    {
        up_ = false;
        if (!down_reported_) {
            down_reported_ = true;
            events_.server_down(options_.server, reason);
        }
    }

    template <class Predicate>
    bool any(Predicate&& predicate) const
    {
        return std::any_of(connections_.begin(), connections_.end(), [&](const auto& connection) {
            return predicate(*connection);
        });
    }

    bool send_on(Connection& connection, PendingCall& record)
    {
        record.deadline = loop_.now() + options_.timeout;
        return connection.send(record);
    }

    void wait(PendingCall& record)
    {
        const milliseconds longest = options_.connect_timeout + options_.timeout;
        record.deadline = loop_.now() + longest;
        waiting_.push(record);
        if (!waiting_timer_->running()) {
            waiting_timer_->start(longest);
        }
        waiting_timer_->on_exit(Timer::OnExit::wait);
    }

    /// All wait equally long, so those whose time is up stand in front.
    void fail_overdue() noexcept
    {
        const milliseconds now = loop_.now();
        CallQueue overdue;
        while (!waiting_.empty() && waiting_.front()->deadline <= now) {
            overdue.push(waiting_.pop());
        }
        if (!waiting_.empty()) {
            waiting_timer_->start(waiting_.front()->deadline - now);
        }
        if (!overdue.empty()) {
            note_failure(describe(Failure::timeout));
        }
        fail_all(overdue, records_, Failure::timeout);
    }

    void fail_waiting() noexcept
    {
        waiting_timer_->stop();
        CallQueue waiting = std::exchange(waiting_, {});
        fail_all(waiting, records_, Failure::connection);
    }

    EventLoop& loop_;
    const ClientOptions options_;
    ClientEvents& events_;
    CircuitBreaker breaker_;
    RecordPool records_;  // before the connections, which give their records back
    std::vector<std::unique_ptr<Connection>> connections_;
    CallQueue waiting_;
    std::unique_ptr<Timer> waiting_timer_;
    bool up_ = false;
    bool down_reported_ = false;
    bool refusing_ = false;                 // it refused calls: up only when it has answered one
    std::vector<std::string> told_errors_;  // first words of the errors of this run
    milliseconds last_error_at_{ 0 };
};

Client::Client(
    EventLoop& loop, ClientOptions options, const ScriptRegistry& scripts, ClientEvents& events)
    : state_(std::make_unique<State>(loop, std::move(options), scripts, events))
{
}

Client::~Client()
{
    state_->close();
}

void Client::start()
{
    state_->start();
}

bool Client::send(Call& call)
{
    return state_->send(call);
}

void Client::close() noexcept
{
    state_->close();
}

}  // namespace ratelimit::redis
