#pragma once

#include "redis/client.h"
#include "redis/hash_ring.h"
#include "redis/router.h"
#include "redis/server.h"

namespace ratelimit::redis {

/// Servers that know nothing of each other, each with its part of the keys; or a single one.
class RingClient final : public Router, public ServerOwner {
public:
    /// `options` and `scripts` must outlive it.
    RingClient(
        EventLoop& loop, const ClientOptions& options, const ScriptRegistry& scripts,
        ClientEvents& events);

    void start() override;
    bool send(Call& call) override;
    void close() noexcept override;
    std::uint32_t place_of(std::string_view key) const noexcept override;

    void server_up(Server& server) noexcept override;
    void server_down(Server& server, std::string_view reason) noexcept override;
    void error_reply(Server& server, std::string_view text) noexcept override;
    ErrorFate fate_of(Server& server, Call* call, std::string_view error) noexcept override;

private:
    ClientEvents& events_;
    HashRing ring_;
    std::vector<std::unique_ptr<Server>> servers_;  // in the order of the options
};

}  // namespace ratelimit::redis
