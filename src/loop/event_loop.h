#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

struct redisAsyncContext;

namespace ratelimit {

using std::chrono::milliseconds;

/// A one-shot timer of an event loop. Destroying it stops it. What has arrived is read before it
/// fires, also when the process was stopped meanwhile (DueTime).
class Timer {
public:
    virtual ~Timer() = default;
    virtual void start(milliseconds delay) noexcept = 0;  // a timer that runs is started anew
    virtual void stop() noexcept = 0;
    virtual bool running() const noexcept = 0;
    /// Whether a process that exits does not wait for this timer, as nginx calls it: a reconnect
    /// that no request waits for, but not a check in flight. May change while it runs.
    virtual void cancelable(bool choice) noexcept = 0;
};

/// Something to be done at the end of the loop's turn, before what was written since it was wanted
/// leaves. Destroying it takes it back.
class EndOfTurn {
public:
    virtual ~EndOfTurn() = default;
    virtual void want() noexcept = 0;  // once for each turn, however often it is called
};

/// What a name stands for.
struct Addresses {
    std::vector<std::string> all;  // numeric, without brackets; empty: it could not be looked up
    milliseconds valid{ 0 };       // for how long, from now
};

/// A name that is being looked up. Destroying it ends that, unheard.
class Lookup {
public:
    virtual ~Lookup() = default;
};

/// What the Redis client asks of an event loop. Two exist: nginx's (src/nginx/hiredis_events) and
/// libevent's (t/unit). One thread; callbacks come from the loop, never from inside these calls.
class EventLoop {
public:
    virtual ~EventLoop() = default;

    /// Gives the context the loop's events (hiredis's adapter hooks). All commands that are issued
    /// within one turn of the loop leave in one write. False: out of memory or connections.
    virtual bool attach(redisAsyncContext& context) noexcept = 0;

    /// `fired` must not throw.
    virtual std::unique_ptr<Timer> make_timer(std::function<void()> fired) = 0;

    /// `done` must not throw.
    virtual std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()> done) = 0;

    /// `done` must not throw. Null: this loop looks no names up.
    virtual std::unique_ptr<Lookup> look_up(
        const std::string& name, std::function<void(const Addresses&)> done) = 0;

    /// A clock of the moment that only goes forward; to a few milliseconds.
    virtual milliseconds now() const noexcept = 0;
};

}  // namespace ratelimit
