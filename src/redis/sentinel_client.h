#pragma once

#include "redis/client.h"
#include "redis/retired_servers.h"
#include "redis/seeds.h"
#include "redis/sentinel_link.h"
#include "redis/staggered_tries.h"

namespace ratelimit::redis {

/// The client of one master that Redis Sentinels watch. It is subscribed to one sentinel. When that
/// link is lost, or the master is away or has become a replica, it tries the sentinels in parallel,
/// and stays subscribed to the first one that names the master. Meanwhile calls wait within their
/// timeout.
class SentinelClient final : public Client, public SentinelLinkOwner {
public:
    explicit SentinelClient(ClientParts parts);
    ~SentinelClient() override { close(); }

    std::uint32_t shard_of(std::string_view) const noexcept override { return 0; }
    ErrorClass classify_error(Server& server, Call* call, std::string_view error) noexcept override;

private:
    static constexpr milliseconds look_up_pause{ 500 };
    static constexpr std::size_t most_retired = 16;  // masters that were just replaced

    void connect() override { look_up(); }
    void disconnect() noexcept override;
    bool route(Call& call) override;
    void each_server(const std::function<void(Server&)>& visit) override;
    Server* server_at(std::uint32_t) const noexcept override { return master_.get(); }
    bool may_be_taken_over(const Server&) const noexcept override
    {
        return takeover_.is_open(loop_.now());
    }
    std::optional<std::uint32_t> number_of(const Server& server) const noexcept override
    {
        return &server == master_.get() ? std::optional<std::uint32_t>(0) : std::nullopt;
    }
    void server_changed(bool up) noexcept override { up ? retry_waiting() : want_master(); }
    void master_is(SentinelLink& link, const Endpoint& master) noexcept override;
    void link_lost(SentinelLink& link, std::string_view reason) noexcept override;

    void want_master() noexcept;
    void look_up() noexcept;
    bool try_candidate(std::size_t candidate) noexcept;
    void exhausted() noexcept;
    void listen_to(SentinelLink& link) noexcept;
    void use_master(const Endpoint& master);
    bool up() const noexcept { return master_ != nullptr && master_->up(); }

    ServerOptions master_options_;
    ServerOptions sentinel_options_;
    std::unique_ptr<Server> master_;
    RetiredServers retired_;
    Seeds sentinels_;
    StaggeredTries tries_;
    std::vector<Endpoint> candidates_;                  // of this look-up
    std::vector<std::unique_ptr<SentinelLink>> tried_;  // destroyed by the next look-up
    std::unique_ptr<SentinelLink> link_;                // the one with the subscription
    std::unique_ptr<Timer> look_up_timer_;
    std::size_t first_;  // decides the first candidate of a look-up
    TakeoverWindow takeover_;
    bool doubted_ = false;  // the master replied that it is a replica
    std::string reason_;    // why a sentinel did not name the master
};

}  // namespace ratelimit::redis
