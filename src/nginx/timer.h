#pragma once

#include "loop/due_time.h"
#include "loop/event_loop.h"
#include "nginx/ngx.h"

namespace ratelimit::nginx {

/// A timer of nginx's loop, which fires after the I/O of its turn.
class NgxTimer final : public Timer {
public:
    explicit NgxTimer(std::function<void()> fired);
    ~NgxTimer() override;
    NgxTimer(const NgxTimer&) = delete;
    NgxTimer& operator=(const NgxTimer&) = delete;

    void start(milliseconds delay) noexcept override;
    void stop() noexcept override;
    bool running() const noexcept override { return event_.timer_set || event_.posted; }
    void delay_exit(bool choice) noexcept override { event_.cancelable = !choice; }

private:
    static void handle(ngx_event_t* event) noexcept;

    void expired() noexcept;

    std::function<void()> fired_;
    const milliseconds resolution_;  // of nginx's timers ("timer_resolution"); 0: exact
    DueTime due_;
    ngx_event_t event_{};
    // nginx's debug log reads the descriptor of an event's connection, so a timer has one too.
    ngx_connection_t connection_{};
};

}  // namespace ratelimit::nginx
