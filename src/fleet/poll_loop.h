#pragma once

#include "loop/event_loop.h"

#include <list>
#include <vector>

namespace ratelimit::fleet {

/// The longest time that calls of the master hold up the start or the end of nginx.
inline constexpr milliseconds longest_hold_up{ 2000 };
/// From a call that failed to the next one.
inline constexpr milliseconds between_tries{ 20 };

/// An EventLoop on poll(2), for a process in which nginx's loop does not run. It does not look up
/// names.
class PollLoop final : public EventLoop {
public:
    PollLoop() = default;
    ~PollLoop() override;
    PollLoop(const PollLoop&) = delete;
    PollLoop& operator=(const PollLoop&) = delete;

    bool attach(redisAsyncContext& context) noexcept override;
    std::unique_ptr<Timer> make_timer(std::function<void()> fired) override;
    std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()> done) override;
    std::unique_ptr<Lookup> look_up(
        const std::string&, std::function<void(const Addresses&)>) override
    {
        return nullptr;
    }
    milliseconds now() const noexcept override;

    /// Runs until the condition holds; false: it did not until `end`, by now().
    bool run_until(const std::function<bool()>& condition, milliseconds end);

private:
    class Connection;
    class PollTimer;
    class EndOfTurnTask;

    void turn(milliseconds end);
    void run_turn_ends();
    void wait(milliseconds end);
    void run_timers();

    // Lists: callbacks add and remove elements. An element that is removed is null until the turn
    // is over.
    std::list<Connection*> connections_;
    std::list<PollTimer*> timers_;
    std::list<EndOfTurnTask*> turn_ends_;
};

}  // namespace ratelimit::fleet
