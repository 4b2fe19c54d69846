#include "fleet/poll_loop.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include <hiredis/async.h>
#include <poll.h>

namespace ratelimit::fleet {

namespace {

/// Replaces an element, which may be visited now, by null.
template <class Element>
void drop(std::list<Element*>& all, const Element* element) noexcept
{
    std::replace(
        all.begin(), all.end(), const_cast<Element*>(element), static_cast<Element*>(nullptr));
}

}  // namespace

/// The events of one hiredis context, which owns it from attach to cleanup.
class PollLoop::Connection {
public:
    Connection(PollLoop& loop, redisAsyncContext& context) : loop_(loop), context_(context)
    {
        loop_.connections_.push_back(this);
        context.ev.data = this;
        context.ev.addRead = [](void* self) noexcept { of(self).reads_ = true; };
        context.ev.delRead = [](void* self) noexcept { of(self).reads_ = false; };
        context.ev.addWrite = [](void* self) noexcept { of(self).writes_ = true; };
        context.ev.delWrite = [](void* self) noexcept { of(self).writes_ = false; };
        context.ev.cleanup = [](void* self) noexcept { delete &of(self); };
    }
    ~Connection() { drop(loop_.connections_, this); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    pollfd wanted() const noexcept
    {
        pollfd wanted{};
        wanted.fd = context_.c.fd;
        wanted.events = static_cast<short>((reads_ ? POLLIN : 0) | (writes_ ? POLLOUT : 0));
        return wanted;
    }
    bool writes() const noexcept { return writes_; }
    void read() noexcept { redisAsyncHandleRead(&context_); }
    void write() noexcept { redisAsyncHandleWrite(&context_); }

private:
    static Connection& of(void* self) noexcept { return *static_cast<Connection*>(self); }

    PollLoop& loop_;
    redisAsyncContext& context_;
    bool reads_ = false;
    bool writes_ = false;
};

class PollLoop::PollTimer final : public Timer {
public:
    PollTimer(PollLoop& loop, std::function<void()> fired) : loop_(loop), fired_(std::move(fired))
    {
        loop_.timers_.push_back(this);
    }
    ~PollTimer() override { drop(loop_.timers_, this); }
    PollTimer(const PollTimer&) = delete;
    PollTimer& operator=(const PollTimer&) = delete;

    void start(milliseconds delay) noexcept override
    {
        due_ = loop_.now() + delay;
        running_ = true;
    }
    void stop() noexcept override { running_ = false; }
    bool running() const noexcept override { return running_; }
    void delay_exit(bool) noexcept override {}

    milliseconds due() const noexcept { return running_ ? due_ : milliseconds::max(); }
    void fire()
    {
        running_ = false;
        fired_();
    }

private:
    PollLoop& loop_;
    std::function<void()> fired_;
    milliseconds due_{ 0 };
    bool running_ = false;
};

class PollLoop::EndOfTurnTask final : public EndOfTurn {
public:
    EndOfTurnTask(PollLoop& loop, std::function<void()> done) : loop_(loop), done_(std::move(done))
    {
        loop_.turn_ends_.push_back(this);
    }
    ~EndOfTurnTask() override { drop(loop_.turn_ends_, this); }
    EndOfTurnTask(const EndOfTurnTask&) = delete;
    EndOfTurnTask& operator=(const EndOfTurnTask&) = delete;

    void want() noexcept override { wanted_ = true; }
    void run()
    {
        if (std::exchange(wanted_, false)) {
            done_();
        }
    }

private:
    PollLoop& loop_;
    std::function<void()> done_;
    bool wanted_ = false;
};

PollLoop::~PollLoop() = default;

bool PollLoop::attach(redisAsyncContext& context) noexcept
{
    try {
        new Connection(*this, context);  // the context owns it
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

std::unique_ptr<Timer> PollLoop::make_timer(std::function<void()> fired)
{
    return std::make_unique<PollTimer>(*this, std::move(fired));
}

std::unique_ptr<EndOfTurn> PollLoop::make_end_of_turn(std::function<void()> done)
{
    return std::make_unique<EndOfTurnTask>(*this, std::move(done));
}

milliseconds PollLoop::now() const noexcept
{
    return std::chrono::duration_cast<milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

bool PollLoop::run_until(const std::function<bool()>& condition, milliseconds end)
{
    while (!condition()) {
        if (now() >= end) {
            return false;
        }
        turn(end);
    }
    return true;
}

void PollLoop::turn(milliseconds end)
{
    run_turn_ends();
    wait(end);
    run_timers();
    connections_.remove(nullptr);
    timers_.remove(nullptr);
    turn_ends_.remove(nullptr);
}

void PollLoop::run_turn_ends()
{
    for (EndOfTurnTask*& end : turn_ends_) {
        if (end != nullptr) {
            end->run();
        }
    }
}

/// Waits for events until a timer is due, and handles them.
void PollLoop::wait(milliseconds end)
{
    for (const PollTimer* timer : timers_) {
        end = timer == nullptr ? end : std::min(end, timer->due());
    }
    std::vector<pollfd> wanted;
    std::vector<std::list<Connection*>::iterator> waiting;
    for (auto each = connections_.begin(); each != connections_.end(); ++each) {
        if (*each != nullptr) {
            wanted.push_back((*each)->wanted());
            waiting.push_back(each);
        }
    }
    const milliseconds time = std::max(end - now(), milliseconds{ 0 });
    if (poll(wanted.data(), wanted.size(), static_cast<int>(time.count())) <= 0) {
        return;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        constexpr int failed = POLLERR | POLLHUP | POLLNVAL;
        const int events = wanted[i].revents;
        if (*waiting[i] != nullptr && (events & (POLLOUT | failed)) != 0
            && (*waiting[i])->writes()) {
            (*waiting[i])->write();
        }
        if (*waiting[i] != nullptr && (events & (POLLIN | failed)) != 0) {
            (*waiting[i])->read();
        }
    }
}

void PollLoop::run_timers()
{
    const milliseconds current = now();
    for (PollTimer*& timer : timers_) {
        if (timer != nullptr && timer->due() <= current) {
            timer->fire();
        }
    }
}

}  // namespace ratelimit::fleet
