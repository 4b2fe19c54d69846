// The map of a large cluster with fragmented slots.

#include "client_fixture.h"
#include "redis/cluster_client.h"
#include "resp_reply.h"

#include <algorithm>
#include <ctime>
#include <vector>

namespace ratelimit {
namespace {

/// A reply to CLUSTER SLOTS in which each slot is a range of its own, on another node than the
/// slots beside it.
std::string fragmented_map(std::size_t nodes)
{
    std::string text = "*" + std::to_string(redis::slot_count) + "\r\n";
    for (std::size_t slot = 0; slot < redis::slot_count; ++slot) {
        const auto host = "a-node-of-a-large-cluster-" + std::to_string(slot % nodes) + ".test";
        text += slots_at(slot, slot, 6379, host);
    }
    return text;
}

/// The processor time, in seconds, that a worker takes for a map that has not changed: the best of
/// several tries.
double time_of_map(LibeventLoop& loop, std::size_t nodes)
{
    redis::ClientOptions options;
    options.servers = { { redis::announced_endpoint("127.0.0.1", 1) } };
    const redis::ScriptRegistry scripts;
    Events events;
    redis::ClusterClient cluster({ loop, options, scripts, events });
    redis::MapSearchOwner& owner = cluster;
    const auto reply = reply_of(fragmented_map(nodes));
    double best = 1e9;
    for (int i = 0; i < 6; ++i) {
        const auto began = std::clock();
        const auto map = redis::read_cluster_slots(*reply, options.servers[0].endpoint);
        owner.map_found(*map);
        // The first map creates the nodes.
        best = i == 0 ? best : std::min(best, double(std::clock() - began) / CLOCKS_PER_SEC);
    }
    std::size_t known = 0;
    static_cast<redis::Client&>(cluster).each_server([&](redis::Server&) { ++known; });
    EXPECT_EQ(known, nodes);
    return best;
}

TEST(LargeCluster, a_map_of_a_thousand_nodes_costs_little_more_than_one_of_ten)
{
    LibeventLoop loop;
    const double few = time_of_map(loop, 10);
    const double many = time_of_map(loop, 1000);
    EXPECT_LT(many, 8 * few) << many << " s and " << few << " s";
    EXPECT_LT(many, 1) << "a worker serves nothing else meanwhile";
}

}  // namespace
}  // namespace ratelimit
