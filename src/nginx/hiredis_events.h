#pragma once

#include "loop/event_loop.h"
#include "nginx/ngx.h"

namespace ratelimit::nginx {

/// nginx's event loop for the Redis client. What is written within one turn of the loop leaves in
/// one write at its end, from nginx's posted events, without asking the kernel for writability.
class NgxLoop final : public EventLoop {
public:
    /// Names are looked up by this resolver, which may be null, from now on.
    void use_resolver(ngx_resolver_t* resolver, ngx_msec_t timeout) noexcept;

    bool attach(redisAsyncContext& context) noexcept override;
    std::unique_ptr<Timer> make_timer(std::function<void()> fired) override;
    std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()> done) override;
    std::unique_ptr<Lookup> look_up(
        const std::string& name, std::function<void(const Addresses&)> done) override;
    milliseconds now() const noexcept override;

private:
    ngx_resolver_t* resolver_ = nullptr;
    ngx_msec_t resolver_timeout_ = 0;
    bool used_up_ = false;  // nginx had no connection left, and the log has it
};

}  // namespace ratelimit::nginx
