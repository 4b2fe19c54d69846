#include "redis/ring_client.h"

#include <algorithm>

namespace ratelimit::redis {

namespace {

/// The name that decides a server's points. It does not depend on how the address is written.
std::string ring_name_of(const Endpoint& endpoint)
{
    if (!endpoint.unix_path.empty()) {
        return "unix:" + endpoint.unix_path;
    }
    return endpoint.host_name + ":" + std::to_string(endpoint.port);
}

}  // namespace

std::vector<HashRing::Member> ring_members(const std::vector<Member>& servers)
{
    std::vector<HashRing::Member> members;
    members.reserve(servers.size());
    for (const Member& server : servers) {
        members.push_back({ ring_name_of(server.endpoint), server.weight });
    }
    return members;
}

RingClient::RingClient(ClientParts parts)
    : Client(std::move(parts)), ring_(ring_members(options_.servers))
{
    for (const Member& member : options_.servers) {
        servers_.push_back(
            std::make_unique<Server>(loop_, member.endpoint, options_.server, scripts_, *this));
    }
}

void RingClient::each_server(const std::function<void(Server&)>& visit)
{
    for (const auto& server : servers_) {
        visit(*server);
    }
}

std::optional<std::uint32_t> RingClient::number_of(const Server& server) const noexcept
{
    const auto found = std::ranges::find(servers_, &server, &std::unique_ptr<Server>::get);
    return found == servers_.end() ? std::nullopt
                                   : std::optional<std::uint32_t>(found - servers_.begin());
}

std::uint32_t RingClient::shard_of(std::string_view key) const noexcept
{
    return ring_.member_of(key);
}

}  // namespace ratelimit::redis
