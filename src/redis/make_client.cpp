#include "redis/make_client.h"

#include "redis/cluster_client.h"
#include "redis/ring_client.h"
#include "redis/sentinel_client.h"

#include <utility>

namespace ratelimit::redis {

std::unique_ptr<Client> make_client(ClientParts parts)
{
    switch (parts.options.topology) {
    case Topology::cluster:
        return std::make_unique<ClusterClient>(std::move(parts));
    case Topology::sentinel:
        return std::make_unique<SentinelClient>(std::move(parts));
    default:
        return std::make_unique<RingClient>(std::move(parts));
    }
}

}  // namespace ratelimit::redis
