#include "redis/client.h"

#include "redis/cluster_client.h"
#include "redis/ring_client.h"
#include "redis/sentinel_client.h"

#include <utility>

namespace ratelimit::redis {

namespace {

std::unique_ptr<Router> make_router(const RouterParts& parts)
{
    switch (parts.options.topology) {
    case Topology::cluster:
        return std::make_unique<ClusterClient>(parts);
    case Topology::sentinel:
        return std::make_unique<SentinelClient>(parts);
    default:
        return std::make_unique<RingClient>(parts);
    }
}

}  // namespace

std::vector<Endpoint> endpoints_of(const ClientOptions& options)
{
    std::vector<Endpoint> endpoints;
    for (const Member& member : options.servers) {
        endpoints.push_back(member.endpoint);
    }
    return endpoints;
}

Client::Client(
    EventLoop& loop, ClientOptions options, const ScriptRegistry& scripts, ClientEvents& events)
    : loop_(loop),
      options_(std::move(options)),
      scripts_(scripts),
      events_(events),
      router_(make_router({ loop_, options_, scripts_, events_ }))
{
}

Client::~Client()
{
    router_->close();
}

void Client::start()
{
    started_ = true;
    router_->start();
}

void Client::rest()
{
    bool idle = started_;
    router_->each_server([&](const Server& server) { idle = idle && server.idle(); });
    if (idle) {
        router_->close();
        router_ = make_router({ loop_, options_, scripts_, events_ });
        started_ = false;
    }
}

bool Client::send(Call& call)
{
    if (!started_) {
        start();
    }
    const auto [expires, shard] = std::pair(call.travel.expires, call.travel.shard);
    call.travel = {};
    call.travel.expires = expires.count() != 0 ? expires : now() + longest_wait();
    call.travel.shard = shard ? *shard : router_->shard_of(call.routing_key());
    return router_->send(call);
}

void Client::close() noexcept
{
    router_->close();
}

bool Client::refuses(std::uint32_t shard) const noexcept
{
    return router_->refuses(shard);
}

void Client::look_at_servers(const std::function<void(const ServerView&)>& look)
{
    router_->each_server([&](Server& server) {
        server.probe();
        look({ server.endpoint(), server.up(), server.refuses(), server.take_stats() });
    });
}

std::uint32_t Client::server_of(std::uint32_t shard) const noexcept
{
    return router_->server_of(shard);
}

std::uint32_t Client::shard_of(std::string_view key) const noexcept
{
    return router_->shard_of(key);
}

}  // namespace ratelimit::redis
