#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct redisAsyncContext;

namespace ratelimit {

using std::chrono::milliseconds;

/// A one-shot timer of an event loop. Destroying it stops it. The loop reads what has arrived
/// before the timer fires, also if the process was stopped meanwhile (DueTime).
class Timer {
public:
    virtual ~Timer() = default;
    virtual void start(milliseconds delay) noexcept = 0;  // restarts a running timer
    virtual void stop() noexcept = 0;
    virtual bool running() const noexcept = 0;
    /// Whether an exiting process waits for this timer: true for a check in flight, false, as at
    /// first, for a reconnect that no request waits for. May change while the timer runs.
    virtual void delay_exit(bool choice) noexcept = 0;
};

/// A callback at the end of the loop's turn, before commands issued since `want` are written.
/// Destroying it cancels the callback.
class EndOfTurn {
public:
    virtual ~EndOfTurn() = default;
    virtual void want() noexcept = 0;  // one callback per turn, also if called several times
};

/// The addresses of a name.
struct Addresses {
    std::vector<std::string> all;  // numeric, without brackets; empty: the look-up failed
    milliseconds valid{ 0 };       // from now; then the name should be looked up again
};

/// A look-up of a name. Destroying it cancels it without a callback.
class Lookup {
public:
    virtual ~Lookup() = default;
};

/// The event loop as the Redis client uses it: nginx's (src/nginx/hiredis_events) or libevent's
/// (t/unit). One thread; callbacks come from the loop, never from inside these calls.
class EventLoop {
public:
    virtual ~EventLoop() = default;

    /// Connects the context's hooks to the loop's events, as hiredis's adapters do. Commands
    /// issued within one turn of the loop leave in one write at its end, if the client has not
    /// written them before. False: out of memory or connections.
    virtual bool attach(redisAsyncContext& context) noexcept = 0;

    /// `fired` must not throw.
    virtual std::unique_ptr<Timer> make_timer(std::function<void()> fired) = 0;

    /// `done` must not throw.
    virtual std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()> done) = 0;

    /// `done` must not throw. Null: this loop cannot look up names.
    virtual std::unique_ptr<Lookup> look_up(
        const std::string& name, std::function<void(const Addresses&)> done) = 0;
    /// The same for a name whose address nothing else tells: also where others are not looked up.
    virtual std::unique_ptr<Lookup> look_up_unknown(
        const std::string& name, std::function<void(const Addresses&)> done)
    {
        return look_up(name, std::move(done));
    }

    /// The current monotonic time, to a few milliseconds.
    virtual milliseconds now() const noexcept = 0;
};

}  // namespace ratelimit
