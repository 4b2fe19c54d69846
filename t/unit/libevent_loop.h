#pragma once

#include "loop/due_time.h"
#include "loop/event_loop.h"

#include <chrono>
#include <map>

struct event_base;

namespace ratelimit {

/// An EventLoop on libevent, by hiredis's adapter. Its time stands still while the machine does: of
/// the time between two readings at most `longest_step` counts, so no test fails because it waits
/// for a processor.
class LibeventLoop final : public EventLoop {
public:
    LibeventLoop();
    ~LibeventLoop() override;
    LibeventLoop(const LibeventLoop&) = delete;
    LibeventLoop& operator=(const LibeventLoop&) = delete;

    bool attach(redisAsyncContext& context) noexcept override;
    std::unique_ptr<Timer> make_timer(std::function<void()> fired) override;
    std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()> done) override;
    std::unique_ptr<Lookup> look_up(
        const std::string& name, std::function<void(const Addresses&)> done) override;
    std::unique_ptr<Lookup> look_up_unknown(
        const std::string& name, std::function<void(const Addresses&)> done) override;
    milliseconds now() const noexcept override;
    /// As a process that is stopped for this time.
    void stand_still(milliseconds time);

    /// The addresses of names; other names cannot be resolved.
    std::map<std::string, Addresses> names;
    milliseconds look_up_takes{ 1 };
    bool has_resolver = true;  // false: only unknown names are looked up
    bool has_room = true;      // false: no connection can be made
    std::chrono::microseconds longest_step{ 5000 };

    /// Runs until the condition holds; false if it did not within `longest`.
    bool run_until(
        const std::function<bool()>& condition, milliseconds longest = milliseconds{ 30'000 });
    void run_for(milliseconds time);

private:
    using Clock = std::chrono::steady_clock;
    static constexpr milliseconds turn{ 2 };

    event_base* base_;
    mutable Clock::time_point read_ = Clock::now();
    mutable Clock::duration time_ = read_.time_since_epoch();
};

}  // namespace ratelimit
