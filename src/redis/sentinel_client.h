#pragma once

#include "redis/retired_servers.h"
#include "redis/router.h"
#include "redis/seeds.h"
#include "redis/sentinel_link.h"
#include "redis/waiting_calls.h"

namespace ratelimit::redis {

/// One master, which Redis Sentinels watch. One of them is listened to; when that is lost, or the
/// master is away or has become a replica, the next one is asked.
class SentinelClient final : public Router, public SentinelLinkOwner {
public:
    explicit SentinelClient(const RouterParts& parts);
    ~SentinelClient() override;

    void start() override;
    bool send(Call& call) override;
    void close() noexcept override;
    std::uint32_t place_of(std::string_view key) const noexcept override;
    bool refuses(std::string_view key) const noexcept override;
    void each_server(const std::function<void(Server&)>& visit) override;

    void server_up(Server& server) noexcept override;
    void server_down(Server& server, std::string_view reason) noexcept override;
    ErrorFate fate_of(Server& server, Call* call, std::string_view error) noexcept override;

    void master_is(const Endpoint& master) noexcept override;
    void link_lost(std::string_view reason) noexcept override;

private:
    static constexpr milliseconds look_up_pause{ 500 };
    static constexpr milliseconds longest_pause{ 4000 };  // when no sentinel answers

    void want_master() noexcept;
    void look_up() noexcept;
    void open_next() noexcept;
    void look_sentinels_up() noexcept;
    void use_master(const Endpoint& master);
    void tell_master();

    ServerOptions master_options_;
    ServerOptions sentinel_options_;
    RecordPool records_;
    WaitingCalls waiting_;  // for the first master
    std::unique_ptr<Server> master_;
    RetiredServers retired_;
    Seeds sentinels_;
    SentinelLink link_;
    std::unique_ptr<Timer> look_up_timer_;
    std::size_t next_sentinel_;
    std::size_t left_to_ask_ = 0;  // sentinels, in this look-up
    milliseconds pause_ = look_up_pause;
    bool looking_up_ = false;
    bool doubted_ = false;  // the master said that it is none
    bool up_ = false;
    bool unknown_told_ = false;
    bool closed_ = false;
};

}  // namespace ratelimit::redis
