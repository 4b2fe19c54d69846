#pragma once

#include "redis/hash_ring.h"
#include "redis/router.h"

namespace ratelimit::redis {

/// Servers that know nothing of each other, each with its part of the keys; or a single one.
class RingClient final : public Router {
public:
    explicit RingClient(const RouterParts& parts);

    void start() override;
    bool send(Call& call) override;
    void close() noexcept override;
    std::uint32_t shard_of(std::string_view key) const noexcept override;
    std::uint32_t server_of(std::uint32_t shard) const noexcept override { return shard; }
    bool refuses(std::uint32_t shard) const noexcept override;
    void each_server(const std::function<void(Server&)>& visit) override;

    void server_reconnected(Server& server) noexcept override;

private:
    HashRing ring_;
    std::vector<std::unique_ptr<Server>> servers_;  // in the order of the options
};

}  // namespace ratelimit::redis
