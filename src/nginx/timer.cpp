#include "nginx/timer.h"

#include "nginx/guarded.h"

namespace ratelimit::nginx {

NgxTimer::NgxTimer(std::function<void()> fired) : fired_(std::move(fired))
{
    connection_.fd = static_cast<ngx_socket_t>(-1);
    connection_.data = this;
    event_.data = &connection_;
    event_.handler = &NgxTimer::handle;
    event_.log = ngx_cycle->log;
}

NgxTimer::~NgxTimer()
{
    stop();
}

void NgxTimer::start(milliseconds delay) noexcept
{
    // Not just ngx_add_timer: it leaves a running timer as it is when the change is below 300 ms.
    stop();
    ngx_add_timer(&event_, static_cast<ngx_msec_t>(delay.count()));
}

void NgxTimer::stop() noexcept
{
    if (event_.timer_set) {
        ngx_del_timer(&event_);
    }
}

void NgxTimer::handle(ngx_event_t* event) noexcept
{
    auto* timer = static_cast<NgxTimer*>(static_cast<ngx_connection_t*>(event->data)->data);
    guarded(ngx_cycle->log, [timer] { timer->fired_(); });
}

}  // namespace ratelimit::nginx
