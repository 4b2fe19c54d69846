#pragma once

#include "loop/event_loop.h"
#include "nginx/ngx.h"

namespace ratelimit::nginx {

/// nginx's event loop for the Redis client. All commands issued within one turn of the loop leave
/// in one write at its end, from a posted event, without waiting for the kernel's write event.
class NgxLoop final : public EventLoop {
public:
    /// Sets the resolver for look_up. Null or without servers: names are not looked up. `timeout`:
    /// of one look-up, ms.
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
    bool used_up_ = false;  // nginx had no free connection, which was logged
};

}  // namespace ratelimit::nginx
