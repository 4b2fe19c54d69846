#include "node/redis_report.h"

#include "nginx/guarded.h"

#include <algorithm>

namespace ratelimit {

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

void report_client(
    std::string_view redis, redis::Client& client, std::uint64_t coalesced,
    ngx_shm_zone_t& counters) noexcept
{
    nginx::guarded(ngx_cycle->log, [&] {
        RedisCounters all(counters);
        client.each_server([&](redis::Server& server) {
            const RedisCounters::Sight sight{ server.up(), server.refuses() };
            all.add(
                redis, server.endpoint().name, counts_in(server.take_stats()),
                ngx_exiting ? nullptr : &sight, static_cast<unsigned>(ngx_worker), report_time());
        });
        const RedisCounters::BlockCounts counts{ coalesced, client.take_failed() };
        if (counts.coalesced != 0 || counts.failed != 0) {
            all.add(redis, counts, report_time());
        }
    });
}

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

}  // namespace ratelimit
