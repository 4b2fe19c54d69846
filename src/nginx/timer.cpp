#include "nginx/timer.h"

#include "nginx/clock.h"
#include "nginx/guarded.h"

namespace ratelimit::nginx {

NgxTimer::NgxTimer(std::function<void()> fired)
    : fired_(std::move(fired)),
      resolution_(reinterpret_cast<const ngx_core_conf_t*>(
                      ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module))
                      ->timer_resolution)
{
    connection_.fd = static_cast<ngx_socket_t>(-1);
    connection_.data = this;
    event_.data = &connection_;
    event_.handler = &NgxTimer::handle;
    event_.log = ngx_cycle->log;
    event_.cancelable = 1;
}

NgxTimer::~NgxTimer()
{
    stop();
}

void NgxTimer::start(milliseconds delay) noexcept
{
    // ngx_add_timer alone leaves a running timer as it is if the change is below 300 ms.
    stop();
    due_.start(coarse_time(), delay, resolution_);
    ngx_add_timer(&event_, static_cast<ngx_msec_t>(delay.count()));
}

void NgxTimer::stop() noexcept
{
    if (event_.timer_set) {
        ngx_del_timer(&event_);
    }
    if (event_.posted) {
        ngx_delete_posted_event(&event_);
    }
    event_.timedout = 0;
}

void NgxTimer::handle(ngx_event_t* event) noexcept
{
    auto* timer = static_cast<NgxTimer*>(static_cast<ngx_connection_t*>(event->data)->data);
    timer->expired();
}

/// Called twice: first as a timer, which with accept_mutex may run before the input of this turn is
/// read, then as a posted event, which runs after that.
void NgxTimer::expired() noexcept
{
    if (event_.timedout) {
        event_.timedout = 0;
        if (const auto left = due_.left(coarse_time()); left.count() > 0) {
            ngx_add_timer(&event_, static_cast<ngx_msec_t>(left.count()));
        } else {
            ngx_post_event(&event_, &ngx_posted_events);
        }
        return;
    }
    guarded(ngx_cycle->log, [this] { fired_(); });
}

}  // namespace ratelimit::nginx
