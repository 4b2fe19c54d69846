#include "node/redis_report.h"

#include <algorithm>

namespace ratelimit {

RedisCounters::seconds report_time() noexcept
{
    return std::chrono::duration_cast<RedisCounters::seconds>(
        std::chrono::milliseconds{ static_cast<std::int64_t>(ngx_current_msec) });
}

unsigned worker_count() noexcept
{
    const auto* core =
        reinterpret_cast<ngx_core_conf_t*>(ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module));
    constexpr unsigned most = RedisCounters::most_workers;
    return core->master ? std::min(static_cast<unsigned>(core->worker_processes), most) : 1;
}

}  // namespace ratelimit
