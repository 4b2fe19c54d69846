#include "node/redis_block.h"

#include "check/ahead_units.h"
#include "check/coalescer.h"
#include "check/lease_renewals.h"
#include "fleet/poll_loop.h"
#include "nginx/guarded.h"
#include "nginx/hiredis_events.h"
#include "nginx/text.h"
#include "node/clocks.h"
#include "redis/context.h"
#include "redis/error_table.h"
#include "redis/make_client.h"
#include "redis/ring_client.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace ratelimit {

namespace {

using nginx::borrowed;

/// A text from outside for a log line: escaped, and the beginning if it is long.
class Shown {
public:
    explicit Shown(std::string_view from) noexcept
        : text(borrowed(nginx::escaped_for_log(from, line_, sizeof(line_))))
    {
    }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

private:
    char line_[256]{};

public:
    const ngx_str_t text;
};

/// For a line about an error of Redis: where to look, if a right is missing.
const char* advice(std::string_view error) noexcept
{
    return redis::lacks_right(error) ? " (ACL LOG in Redis names the right, \"Rights in Redis\" in "
                                       "doc/operations.md all of them)"
                                     : "";
}

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

/// The current time as the counters measure it: monotonic, the same in all workers.
RedisCounters::seconds report_time() noexcept
{
    return std::chrono::duration_cast<RedisCounters::seconds>(
        std::chrono::milliseconds{ static_cast<std::int64_t>(ngx_current_msec) });
}

nginx::NgxLoop& event_loop(const nginx::Resolvers& resolvers)
{
    static nginx::NgxLoop loop;
    loop.use_resolvers(resolvers);
    return loop;
}

}  // namespace

unsigned worker_count() noexcept
{
    const auto* core =
        reinterpret_cast<ngx_core_conf_t*>(ngx_get_conf(ngx_cycle->conf_ctx, ngx_core_module));
    constexpr unsigned most = RedisCounters::most_workers;
    return core->master ? std::min(static_cast<unsigned>(core->worker_processes), most) : 1;
}

RedisBlock::RedisBlock() = default;
RedisBlock::~RedisBlock() = default;

std::string RedisBlock::storage() const
{
    std::string text = std::to_string(static_cast<int>(options.topology)) + options.master + "/"
        + std::to_string(options.server.database);
    std::vector<std::string> servers;
    for (const auto& member : redis::ring_members(options.servers)) {
        servers.push_back("," + member.name + "*" + std::to_string(member.weight));
    }
    std::sort(servers.begin(), servers.end());
    return std::accumulate(servers.begin(), servers.end(), std::move(text));
}

redis::Client& RedisBlock::client()
{
    return coalescer().client();
}

Coalescer& RedisBlock::coalescer()
{
    if (coalescer_ == nullptr) {
        redis::ClientOptions own = options;
        const auto half =
            ngx_cycle->connection_n / 2 / static_cast<std::size_t>(own.server.connections);
        own.most_masters = std::min<std::size_t>(own.most_masters, half);
        auto client = redis::make_client({ event_loop(resolvers), std::move(own), scripts, *this });
        auto coalescer = std::make_unique<Coalescer>(*client, node_clock.since_epoch);
        auto ahead_units = std::make_unique<AheadUnits>(*client, node_clock.monotonic);
        auto lease_renewals = std::make_unique<LeaseRenewals>(*client);
        client->start();
        // Only now, so that there are all or, out of memory, none.
        client_ = std::move(client);
        coalescer_ = std::move(coalescer);
        ahead_units_ = std::move(ahead_units);
        lease_renewals_ = std::move(lease_renewals);
    }
    return *coalescer_;
}

void RedisBlock::probe() noexcept
{
    if (client_ != nullptr) {
        nginx::guarded(ngx_cycle->log, [this] { client_->probe(); });
    }
}

void RedisBlock::rest() noexcept
{
    if (client_ == nullptr) {
        return;
    }
    client_->leave();
    const bool rests = std::all_of(
        holdings.begin(), holdings.end(), [](Holdings* of_zone) { return of_zone->rest(); });
    if (rests) {
        nginx::guarded(ngx_cycle->log, [this] { client_->rest(); });
    }
}

void RedisBlock::report() noexcept
{
    if (client_ == nullptr) {
        return;
    }
    nginx::guarded(ngx_cycle->log, [this] {
        RedisCounters all(*counters);
        client_->each_server([&](redis::Server& server) {
            const RedisCounters::Sight sight{ server.up(), server.refuses() };
            all.add(
                name, server.endpoint().name, counts_in(server.take_stats()),
                ngx_exiting ? nullptr : &sight, static_cast<unsigned>(ngx_worker), report_time());
        });
        const RedisCounters::BlockCounts counts{ coalescer_->take_waited(),
                                                 client_->take_failed() };
        if (counts.coalesced != 0 || counts.failed != 0) {
            all.add(name, counts, report_time());
        }
    });
}

std::vector<RedisCounters::Server> RedisBlock::servers() const
{
    return RedisCounters(*counters).servers(name, worker_count(), report_time());
}

void RedisBlock::close() noexcept
{
    report();
    if (client_ != nullptr) {
        ahead_units_->close();
        client_->flush();
        client_->close();
    }
}

void RedisBlock::send_owed() noexcept
{
    if (client_ == nullptr || client_->outbox().empty()) {
        return;
    }
    nginx::guarded(ngx_cycle->log, [this] {
        fleet::PollLoop loop;
        redis::ClientEvents events;
        const auto last = redis::make_client({ loop, options, scripts, events });
        const auto told = [&last] { return last->outbox().empty(); };
        last->start();
        last->outbox().take(client_->outbox());
        if (!loop.run_until(told, loop.now() + last->longest_wait())) {
            ngx_log_error(
                NGX_LOG_WARN, ngx_cycle->log, 0,
                "ratelimit: redis \"%s\" did not answer when a worker exited: what its "
                "requests held of zones with concurrency= is free after hold, what passed "
                "ahead (ahead=) may not be counted, and refunds are lost",
                name.c_str());
        }
    });
}

void RedisBlock::stop() noexcept
{
    client_.reset();  // first: it notifies the others of calls that fail
    coalescer_.reset();
    ahead_units_.reset();
    lease_renewals_.reset();
}

void RedisBlock::server_up(const redis::Endpoint& server) noexcept
{
    const Shown address(server.name);
    report();
    ngx_log_error(
        NGX_LOG_NOTICE, ngx_cycle->log, 0, "ratelimit: redis \"%s\" at %V is up", name.c_str(),
        &address.text);
}

/// Forgets remembered refusals: those that rest on lost counts do not hold any more. States again
/// what requests hold, which the server may not know.
void RedisBlock::counts_may_be_lost(std::uint32_t server) noexcept
{
    for (const Zone* zone : zones) {
        zone->memory().denials().forget_server(server);
    }
    for (Holdings* of_zone : holdings) {
        of_zone->restate(server);
    }
}

void RedisBlock::server_down(const redis::Endpoint& server, std::string_view reason) noexcept
{
    report();
    if (reason == redis::no_connection_left) {
        return;  // NgxLoop has logged it, and the server is not the cause
    }
    const bool named = !server.tried.empty() && server.tried != server.host_name;
    const Shown address(server.name);
    const Shown tried(named ? std::string_view(server.tried) : std::string_view());
    const Shown shown(reason);
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0,
        "ratelimit: redis \"%s\" at %V%s%V%s is away, the fail mode decides: %V%s", name.c_str(),
        &address.text, named ? " (" : "", &tried.text, named ? ")" : "", &shown.text,
        advice(reason));
}

void RedisBlock::error_reply(const redis::Endpoint& server, std::string_view text) noexcept
{
    const Shown address(server.name);
    const Shown shown(text);
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0, "ratelimit: redis \"%s\" at %V answered: %V%s",
        name.c_str(), &address.text, &shown.text, advice(text));
}

void RedisBlock::servers_known(std::string_view known) noexcept
{
    const Shown shown(known);
    ngx_log_error(
        NGX_LOG_NOTICE, ngx_cycle->log, 0, "ratelimit: redis \"%s\": %V", name.c_str(),
        &shown.text);
}

void RedisBlock::servers_unknown(std::string_view reason) noexcept
{
    const bool sentinel = options.topology == redis::Topology::sentinel;
    const Shown shown(reason);
    ngx_log_error(
        NGX_LOG_ERR, ngx_cycle->log, 0, "ratelimit: redis \"%s\": no %s: %V", name.c_str(),
        sentinel ? "sentinel knows where the master is" : "node of the cluster knows its slots",
        &shown.text);
}

}  // namespace ratelimit
