#pragma once

#include "loop/event_loop.h"

namespace ratelimit::nginx {

/// nginx's event loop for the Redis client. What is written within one turn of the loop leaves in
/// one write at its end, from nginx's posted events, without asking the kernel for writability.
class NgxLoop final : public EventLoop {
public:
    bool attach(redisAsyncContext& context) noexcept override;
    std::unique_ptr<Timer> make_timer(std::function<void()> fired) override;
    milliseconds now() const noexcept override;
};

}  // namespace ratelimit::nginx
