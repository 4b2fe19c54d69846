#pragma once

#include "redis/cluster_slots.h"
#include "redis/hash_slot.h"
#include "redis/retired_servers.h"
#include "redis/router.h"
#include "redis/seeds.h"
#include "redis/waiting_calls.h"

#include <array>
#include <span>

namespace ratelimit::redis {

/// Redis Cluster. Learns which master has which slot from CLUSTER SLOTS, of any node that answers;
/// follows MOVED and ASK, and asks for the map again, at most once a second, when one of them, an
/// error or a lost connection says that it is old.
class ClusterClient final : public Router {
public:
    explicit ClusterClient(const RouterParts& parts);
    ~ClusterClient() override;

    void start() override;
    bool send(Call& call) override;
    void close() noexcept override;
    std::uint32_t place_of(std::string_view key) const noexcept override;
    bool refuses(std::string_view key) const noexcept override;
    void each_server(const std::function<void(Server&)>& visit) override;

    void server_up(Server& server) noexcept override;
    void server_down(Server& server, std::string_view reason) noexcept override;
    void error_reply(Server& server, std::string_view text) noexcept override;
    ErrorFate fate_of(Server& server, Call* call, std::string_view error) noexcept override;

private:
    static constexpr milliseconds refresh_pause{ 1000 };
    static constexpr int most_redirections = 5;

    class MapQuery;

    bool is_node(const Server& server) const noexcept;
    Server* node_named(std::string_view name) const noexcept;
    Server& node_at(const Endpoint& endpoint);
    ErrorFate pass_on(Call& call, const Redirection& redirection);
    void want_map() noexcept;
    void refresh();
    void ask_next();
    void map_answered(const redisReply& reply);
    void map_failed() noexcept;
    void use_map(std::span<const SlotRange> map);
    void tell_map(std::span<const SlotRange> map);

    ServerOptions node_options_;
    RecordPool records_;
    WaitingCalls waiting_;  // for the first map
    std::vector<std::unique_ptr<Server>> nodes_;
    std::array<Server*, slot_count> slots_{};
    RetiredServers retired_;

    // Getting the map: each candidate is asked, until one answers.
    Seeds seeds_;
    ServerOptions probe_options_;
    const ScriptRegistry no_scripts_;
    std::vector<Endpoint> candidates_;
    std::size_t next_candidate_ = 0;
    std::unique_ptr<MapQuery> query_;
    std::unique_ptr<Server> probe_;  // the one that is asked, if it is no node
    Endpoint asked_;
    std::unique_ptr<Timer> refresh_timer_;
    milliseconds last_refresh_{ 0 };
    bool refreshing_ = false;
    bool known_ = false;
    bool unknown_told_ = false;
    bool closed_ = false;
    std::string last_reason_;  // why a candidate did not answer
    std::string told_map_;     // the masters, as told to the owner
};

}  // namespace ratelimit::redis
