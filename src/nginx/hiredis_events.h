#pragma once

#include "loop/event_loop.h"
#include "nginx/name_lookup.h"
#include "nginx/ngx.h"
#include "nginx/resolvers.h"

namespace ratelimit::nginx {

/// nginx's event loop for the Redis client. All commands issued within one turn of the loop leave
/// in one write at its end, from a posted event, without waiting for the kernel's write event.
class NgxLoop final : public EventLoop {
public:
    void use_resolvers(const Resolvers& resolvers) noexcept { resolvers_ = resolvers; }

    bool attach(redisAsyncContext& context) noexcept override;
    std::unique_ptr<Timer> make_timer(std::function<void()> fired) override;
    std::unique_ptr<EndOfTurn> make_end_of_turn(std::function<void()> done) override;
    std::unique_ptr<Lookup> look_up(
        const std::string& name, std::function<void(const Addresses&)> done) override;
    std::unique_ptr<Lookup> look_up_unknown(
        const std::string& name, std::function<void(const Addresses&)> done) override;
    milliseconds now() const noexcept override;

private:
    Resolvers resolvers_;
    FailedNames failed_names_;
    bool used_up_ = false;  // nginx had no free connection, which was logged
};

}  // namespace ratelimit::nginx
