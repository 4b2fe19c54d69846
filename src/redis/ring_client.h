#pragma once

#include "redis/client.h"
#include "redis/hash_ring.h"

namespace ratelimit::redis {

/// What decides the points of each server on the ring.
std::vector<HashRing::Member> ring_members(const std::vector<Member>& servers);

/// The client of independent servers, each of which has a part of the keys, or of a single server.
class RingClient final : public Client {
public:
    explicit RingClient(ClientParts parts);
    ~RingClient() override { close(); }

    std::uint32_t shard_of(std::string_view key) const noexcept override;
    std::uint32_t server_of(std::uint32_t shard) const noexcept override { return shard; }

private:
    Server* server_at(std::uint32_t shard) const noexcept override { return servers_[shard].get(); }
    std::optional<std::uint32_t> number_of(const Server& server) const noexcept override;
    bool route(Call& call) override { return servers_[*call.routing.shard]->send(call); }
    void each_server(const std::function<void(Server&)>& visit) override;

    HashRing ring_;
    std::vector<std::unique_ptr<Server>> servers_;  // in the order of the options
};

}  // namespace ratelimit::redis
