#pragma once

#include "base/random.h"
#include "redis/client.h"
#include "redis/cluster_slots.h"
#include "redis/retired_servers.h"
#include "redis/seeds.h"
#include "redis/staggered_tries.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::redis {

/// The owner of a search.
class MapSearchOwner {
public:
    virtual ~MapSearchOwner() = default;
    /// The nodes of the last map. They must exist until the search has ended.
    virtual void each_server(const std::function<void(Server&)>& visit) = 0;
    virtual void map_found(std::span<const SlotRange> map) = 0;
    /// No candidate has returned a map.
    virtual void map_not_found(std::string_view reason) noexcept = 0;
};

/// Requests a cluster's map (CLUSTER SLOTS) from its nodes, at most once a second. Known nodes and
/// seeds are tried in parallel, and the first map is used.
class MapSearch final : public ServerOwner {
public:
    MapSearch(EventLoop& loop, const ClientOptions& options, MapSearchOwner& owner);
    ~MapSearch() override;
    MapSearch(const MapSearch&) = delete;
    MapSearch& operator=(const MapSearch&) = delete;

    /// Starts a search now, also after close().
    void start() noexcept;
    /// Starts a search when a second has passed since the last one began.
    void want() noexcept;
    bool running() const noexcept { return tries_.running(); }
    void close() noexcept;

private:
    static constexpr milliseconds pause{ 1000 };

    class Query;
    struct Candidate {
        Endpoint endpoint;
        Server* node;  // used if it is ready; null: a seed
    };

    void find_candidates();
    bool try_candidate(std::size_t candidate) noexcept;
    void answered(Query& query, const redisReply& reply);
    void failed(Query& query, std::string_view reason) noexcept;
    void exhausted() noexcept;
    void end() noexcept;

    void server_down(Server& server, std::string_view reason) noexcept override;
    void error_reply(Server& server, std::string_view text) noexcept override;

    EventLoop& loop_;
    ServerOptions probe_options_;
    const std::size_t most_masters_;
    MapSearchOwner& owner_;
    const ScriptRegistry no_scripts_;
    Seeds seeds_;
    RetiredServers retired_;
    StaggeredTries tries_;
    std::unique_ptr<Timer> timer_;  // until the next search may begin
    std::vector<Candidate> candidates_;
    std::vector<std::unique_ptr<Query>> queries_;  // of this search
    std::size_t turn_ = random_number();
    milliseconds began_{ 0 };
    bool closed_ = false;
    std::string reason_;  // why a candidate returned no map
};

}  // namespace ratelimit::redis
