#include "http/redis_report.h"

#include "http/conf.h"
#include "nginx/guarded.h"

#include <algorithm>

namespace ratelimit::http {

namespace {

static_assert(RedisCounters::latency_buckets == redis::ServerStats::bounds.size() + 1);

RedisCounters::Counts counts_in(const redis::ServerStats& stats) noexcept
{
    RedisCounters::Counts counts;
    counts.latencies = stats.latencies;
    counts.total_us = static_cast<std::uint64_t>(stats.total.count());
    counts.calls = stats.calls;
    counts.errors = { stats.timeouts, stats.connection_errors, stats.error_replies };
    counts.reconnects = stats.reconnects;
    return counts;
}

}  // namespace

void report(RedisBlock& block) noexcept
{
    redis::Client* client = block.started_client();
    if (client == nullptr || block.counters == nullptr) {
        return;
    }
    nginx::guarded(ngx_cycle->log, [&] {
        RedisCounters counters(*block.counters);
        client->look_at_servers([&](const redis::ServerView& view) {
            const RedisCounters::Sight sight{ view.up, view.breaker_open };
            counters.add(
                block.name, view.endpoint.name, counts_in(view.stats),
                ngx_exiting ? nullptr : &sight, static_cast<unsigned>(ngx_worker), report_time());
        });
        if (const auto coalesced = block.take_coalesced(); coalesced != 0) {
            counters.add_coalesced(block.name, coalesced, report_time());
        }
    });
}

RedisCounters redis_counters(const MainConf& conf) noexcept
{
    return RedisCounters(*conf.redis_counters);
}

/// nginx's clock of milliseconds is the machine's, which only goes on.
RedisCounters::seconds report_time() noexcept
{
    return std::chrono::duration_cast<std::chrono::seconds>(
        milliseconds{ static_cast<milliseconds::rep>(ngx_current_msec) });
}

unsigned worker_count() noexcept
{
    const auto* core =
        reinterpret_cast<ngx_core_conf_t*>(ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module));
    constexpr unsigned most = RedisCounters::most_workers;
    return core->master ? std::min(static_cast<unsigned>(core->worker_processes), most) : 1;
}

}  // namespace ratelimit::http
