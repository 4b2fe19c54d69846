#include "libevent_loop.h"

#include <algorithm>
#include <csignal>
#include <thread>
#include <utility>

#include <event2/event.h>

#include <hiredis/adapters/libevent.h>

namespace ratelimit {

namespace {

timeval timeval_of(milliseconds time)
{
    timeval value{};
    value.tv_sec = time.count() / 1000;
    value.tv_usec = time.count() % 1000 * 1000;
    return value;
}

class LibeventTimer final : public Timer {
public:
    LibeventTimer(const EventLoop& loop, event_base* base, std::function<void()> fired)
        : loop_(loop),
          fired_(std::move(fired)),
          event_(event_new(
              base, -1, 0,
              [](evutil_socket_t, short, void* self) {
                  static_cast<LibeventTimer*>(self)->expired();
              },
              this))
    {
    }
    ~LibeventTimer() override { event_free(event_); }
    LibeventTimer(const LibeventTimer&) = delete;
    LibeventTimer& operator=(const LibeventTimer&) = delete;

    void start(milliseconds delay) noexcept override
    {
        due_.start(loop_.now(), delay);
        wait(delay);
    }
    void stop() noexcept override { event_del(event_); }
    bool running() const noexcept override
    {
        return event_pending(event_, EV_TIMEOUT, nullptr) != 0;
    }
    void delay_exit(bool) noexcept override {}

private:
    void wait(milliseconds time) noexcept
    {
        const timeval value = timeval_of(time);
        event_add(event_, &value);
    }
    /// libevent runs timers after the I/O of a turn.
    void expired()
    {
        if (const auto left = due_.left(loop_.now()); left.count() > 0) {
            wait(left);
        } else {
            fired_();
        }
    }

    const EventLoop& loop_;
    std::function<void()> fired_;
    DueTime due_;
    event* event_;
};

/// Runs with the active events, before the events that write to sockets.
class ActiveEvent final : public EndOfTurn {
public:
    ActiveEvent(event_base* base, std::function<void()> done)
        : done_(std::move(done)),
          event_(event_new(
              base, -1, 0,
              [](evutil_socket_t, short, void* self) { static_cast<ActiveEvent*>(self)->done_(); },
              this))
    {
    }
    ~ActiveEvent() override { event_free(event_); }
    ActiveEvent(const ActiveEvent&) = delete;
    ActiveEvent& operator=(const ActiveEvent&) = delete;

    void want() noexcept override { event_active(event_, EV_TIMEOUT, 0); }

private:
    std::function<void()> done_;
    event* event_;
};

/// Responds from the loop, as a resolver does.
class TableLookup final : public Lookup {
public:
    TableLookup(LibeventLoop& loop, Addresses addresses, std::function<void(const Addresses&)> done)
        : timer_(loop.make_timer(
            [addresses = std::move(addresses), done = std::move(done)] { done(addresses); }))
    {
        timer_->start(loop.look_up_takes);
    }

private:
    std::unique_ptr<Timer> timer_;
};

}  // namespace

std::unique_ptr<EndOfTurn> LibeventLoop::make_end_of_turn(std::function<void()> done)
{
    return std::make_unique<ActiveEvent>(base_, std::move(done));
}

std::unique_ptr<Lookup> LibeventLoop::look_up(
    const std::string& name, std::function<void(const Addresses&)> done)
{
    return has_resolver ? look_up_unknown(name, std::move(done)) : nullptr;
}

std::unique_ptr<Lookup> LibeventLoop::look_up_unknown(
    const std::string& name, std::function<void(const Addresses&)> done)
{
    const auto found = names.find(name);
    Addresses addresses = found == names.end() ? Addresses{} : found->second;
    return std::make_unique<TableLookup>(*this, std::move(addresses), std::move(done));
}

LibeventLoop::LibeventLoop() : base_(event_base_new())
{
    // As nginx does: Redis may close a connection that is written to.
    std::signal(SIGPIPE, SIG_IGN);
}

LibeventLoop::~LibeventLoop()
{
    event_base_free(base_);
}

bool LibeventLoop::attach(redisAsyncContext& context) noexcept
{
    return has_room && redisLibeventAttach(&context, base_) == REDIS_OK;
}

std::unique_ptr<Timer> LibeventLoop::make_timer(std::function<void()> fired)
{
    return std::make_unique<LibeventTimer>(*this, base_, std::move(fired));
}

milliseconds LibeventLoop::now() const noexcept
{
    const auto last = std::exchange(read_, Clock::now());
    time_ += std::min<Clock::duration>(read_ - last, longest_step);
    return std::chrono::duration_cast<milliseconds>(time_);
}

void LibeventLoop::stand_still(milliseconds time)
{
    std::this_thread::sleep_for(time);
    time_ += time;
    read_ = Clock::now();
}

bool LibeventLoop::run_until(const std::function<bool()>& condition, milliseconds longest)
{
    const milliseconds end = now() + longest;
    while (!condition()) {
        if (now() >= end) {
            return false;
        }
        run_for(turn);
    }
    return true;
}

void LibeventLoop::run_for(milliseconds time)
{
    const milliseconds end = now() + time;
    do {
        const timeval value = timeval_of(std::min(turn, time));
        event_base_loopexit(base_, &value);
        event_base_dispatch(base_);
    } while (now() < end);
}

}  // namespace ratelimit
