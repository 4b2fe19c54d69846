#pragma once

#include "redis/client.h"
#include "redis/cluster_slots.h"
#include "redis/hash_slot.h"
#include "redis/map_search.h"
#include "redis/retired_servers.h"

#include <array>
#include <map>
#include <set>
#include <span>

namespace ratelimit::redis {

/// The client of a Redis Cluster. It has a map of slots to masters, and follows MOVED and ASK. It
/// requests the map again after a MOVED, an error or a lost connection, and while a master is away.
/// A call whose master is away waits for a takeover within its timeout. Every 100 ms, one such call
/// is sent to another node, which names the new master in a MOVED as soon as it knows.
class ClusterClient final : public Client, public MapSearchOwner {
public:
    explicit ClusterClient(ClientParts parts);
    ~ClusterClient() override { close(); }

    std::uint32_t shard_of(std::string_view key) const noexcept override { return hash_slot(key); }
    ErrorClass classify_error(Server& server, Call* call, std::string_view error) noexcept override;

private:
    static constexpr milliseconds retry_pause{ 100 };
    static constexpr int most_redirections = 5;
    /// A late reply comes up to a minute later (SilentPipelines).
    static constexpr milliseconds asked_lasts{ 60'000 };

    void connect() override { search_.start(); }
    void disconnect() noexcept override;
    bool route(Call& call) override;
    void each_server(const std::function<void(Server&)>& visit) override;
    Server* server_at(std::uint32_t shard) const noexcept override;
    bool may_be_taken_over(const Server& server) const noexcept override;
    std::optional<std::uint32_t> number_of(const Server& server) const noexcept override;
    void server_changed(bool up) noexcept override { up ? retry_waiting_soon() : search_.want(); }
    Server& node_at(const Endpoint& endpoint);
    ErrorClass cluster_down(Server& server, Call* call, std::string_view error) noexcept;
    ErrorClass pass_on(Call& call, const Redirection& redirection);
    void moved(std::uint16_t slot, Server& owner);
    void taken_over(Server& old) noexcept;
    bool send_elsewhere(Call& call);
    bool wait(Call& call) noexcept;
    void retry_waiting_soon() noexcept;

    void map_found(std::span<const SlotRange> map) override;
    void map_not_found(std::string_view reason) noexcept override { servers_unknown(reason); }
    void use_map(std::span<const SlotRange> map);
    void retire_unused(const std::set<const Server*>& owners);
    void report_masters(const std::set<const Server*>& owners);

    std::map<std::string, std::unique_ptr<Server>, std::less<>> nodes_;  // by name
    std::array<Server*, slot_count> slots_{};
    RetiredServers retired_;
    MapSearch search_;
    /// The takeover of an owner of slots that is away. Each has its own, so that a node which stays
    /// away does not use up the time of another.
    struct Takeover {
        TakeoverWindow window;
        milliseconds sent_elsewhere_at{ 0 };
    };
    std::map<const Server*, Takeover> takeovers_;  // by owner; null: of slots without one
    std::map<const Server*, milliseconds> asked_;  // nodes that ASK named, and when last
    std::unique_ptr<Timer> retry_timer_;           // until waiting calls are sent again
};

}  // namespace ratelimit::redis
