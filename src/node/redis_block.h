#pragma once

#include "nginx/ngx_http.h"
#include "nginx/resolvers.h"
#include "redis/client.h"
#include "store/redis_counters.h"
#include "zone/zone.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace ratelimit {

class AheadUnits;
class Coalescer;
class Holdings;
class LeaseRenewals;

/// Kinds of errors, as RedisCounters counts them.
inline constexpr std::array<std::string_view, RedisCounters::error_kinds> redis_error_names = {
    "timeout", "connection", "error_reply"
};

/// How many workers this node has, at most RedisCounters::most_workers.
unsigned worker_count() noexcept;

/// One ratelimit_redis block and, in a worker, its client.
class RedisBlock final : public redis::ClientEvents {
public:
    RedisBlock();
    ~RedisBlock() override;

    std::string name;
    redis::ClientOptions options;
    std::string prefix = "rl:";
    bool tls_on = false;
    redis::TlsOptions tls;  // as configured; options.server.tls is made from it
    nginx::Resolvers resolvers;
    bool weighted = false;  // a server has a weight=
    redis::ScriptRegistry scripts;
    ngx_shm_zone_t* counters = nullptr;  // RedisCounters
    std::vector<const Zone*> zones;      // that this block counts
    std::vector<Holdings*> holdings;     // of this worker, of these zones

    /// Whether keys can be on different servers.
    bool may_span_shards() const noexcept
    {
        return options.topology == redis::Topology::cluster
            || (options.topology == redis::Topology::ring && options.servers.size() > 1);
    }

    /// How many connections a worker keeps at least: servers that it discovers add to them.
    std::size_t least_connections() const noexcept
    {
        const auto each = static_cast<std::size_t>(options.server.connections);
        return options.topology == redis::Topology::sentinel ? each + 1
                                                             : each * options.servers.size();
    }

    redis::milliseconds least_timeout() const noexcept
    {
        return std::min(options.server.timeout, options.server.connect_timeout);
    }

    /// Identifies where keys are stored: topology, servers and database.
    std::string storage() const;

    /// The client. The first call makes it and starts to connect: when a worker starts or, after a
    /// reload with master_process off, at the first request.
    redis::Client& client();
    /// Sends checks to the client.
    Coalescer& coalescer();
    /// The units that this worker let in ahead of Redis. Call after client().
    AheadUnits& ahead_units() noexcept { return *ahead_units_; }
    /// The leases that this worker renews. Call after client().
    LeaseRenewals& lease_renewals() noexcept { return *lease_renewals_; }

    /// Adds this worker's figures of the servers since the last report to those of all workers.
    void report() noexcept;
    /// The servers as all workers of this node have reported them, sorted by name.
    std::vector<RedisCounters::Server> servers() const;

    /// Probes the servers that have been silent for a second, so that an idle worker notices their
    /// failures, too.
    void probe() noexcept;

    /// Closes the connections, unless a check is in flight; the next check connects again.
    void rest() noexcept;

    /// Writes what has been sent, fails the checks in flight and closes the connections.
    void close() noexcept;
    /// After close(), nginx's event loop does not run any longer: sends what the client still owes,
    /// with a loop and connections of its own, for at most connect_timeout + timeout.
    void send_owed() noexcept;
    /// Destroys the client. Call after send_owed().
    void stop() noexcept;

    void server_up(const redis::Endpoint& server) noexcept override;
    void server_down(const redis::Endpoint& server, std::string_view reason) noexcept override;
    void counts_may_be_lost(std::uint32_t server) noexcept override;
    void error_reply(const redis::Endpoint& server, std::string_view text) noexcept override;
    void servers_known(std::string_view text) noexcept override;
    void servers_unknown(std::string_view reason) noexcept override;

private:
    std::unique_ptr<Coalescer> coalescer_;
    std::unique_ptr<AheadUnits> ahead_units_;
    std::unique_ptr<LeaseRenewals> lease_renewals_;
    std::unique_ptr<redis::Client> client_;
};

}  // namespace ratelimit
