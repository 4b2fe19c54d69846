#include "redis/map_search.h"

#include <algorithm>
#include <set>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

// Each of 16384 ranges with a master and three replicas, all with names.
constexpr std::size_t longest_map = std::size_t{ 64 } * 1024 * 1024;

std::size_t masters_in(std::span<const SlotRange> map)
{
    std::set<std::string_view> names;
    for (const SlotRange& range : map) {
        names.insert(range.master.name);
    }
    return names.size();
}

}  // namespace

/// CLUSTER SLOTS, to one candidate.
class MapSearch::Query final : public CommandCall {
public:
    explicit Query(MapSearch& search)
        : CommandCall(plain_command({ "CLUSTER", "SLOTS" })), search_(search)
    {
        delays_exit = false;
    }
    ~Query() override { search_.retired_.add(std::move(probe)); }

    // In both functions, the search may destroy this object.
    bool on_reply(const redisReply& reply) noexcept override
    {
        MapSearch& search = search_;
        try {
            search.answered(*this, reply);
        } catch (const std::exception& error) {
            search.end();
            search.owner_.map_not_found(error.what());
            search.want();
        }
        return true;
    }
    std::size_t longest_reply() const noexcept override { return longest_map; }
    void ended(Fate fate) noexcept override { search_.failed(*this, describe(fate)); }

    const Endpoint& endpoint() const noexcept { return server->endpoint(); }

    Server* server = nullptr;
    std::unique_ptr<Server> probe;  // owns `server`, unless that is a known node

private:
    MapSearch& search_;
};

MapSearch::MapSearch(EventLoop& loop, const ClientOptions& options, MapSearchOwner& owner)
    : loop_(loop),
      probe_options_(options.server),
      most_masters_(options.most_masters),
      owner_(owner),
      seeds_(loop, endpoints_of(options)),
      retired_(loop, options.server),
      tries_(
          loop, [this](std::size_t candidate) { return try_candidate(candidate); },
          [this] { exhausted(); }),
      timer_(loop.make_timer([this] { start(); }))
{
    probe_options_.connections = 1;
}

MapSearch::~MapSearch()
{
    close();
}

void MapSearch::close() noexcept
{
    closed_ = true;
    timer_->stop();
    end();
    retired_.close();
}

void MapSearch::end() noexcept
{
    tries_.end();
    const auto dropped = std::exchange(queries_, {});
}

void MapSearch::want() noexcept
{
    if (!running() && !closed_ && !timer_->running()) {
        timer_->start(std::max(began_ + pause - loop_.now(), milliseconds{ 1 }));
    }
}

void MapSearch::start() noexcept
try {
    closed_ = false;
    began_ = loop_.now();
    reason_.clear();
    find_candidates();
    tries_.begin(candidates_.size());
} catch (const std::exception&) {
    want();  // out of memory
}

void MapSearch::find_candidates()
{
    std::vector<Server*> nodes;
    owner_.each_server([&nodes](Server& node) { nodes.push_back(&node); });
    if (!nodes.empty()) {
        // Start with another node each time, because some may have an old map.
        const std::size_t turn = turn_++ % nodes.size();
        std::rotate(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(turn), nodes.end());
    }
    const auto others = std::stable_partition(
        nodes.begin(), nodes.end(), [](const Server* node) { return node->ready(); });
    candidates_.clear();
    const auto add_nodes = [this](auto from, auto to) {
        std::for_each(from, to, [this](Server* node) {
            candidates_.push_back({ node->endpoint(), node });
        });
    };
    add_nodes(nodes.begin(), others);
    for (Endpoint& seed : seeds_.candidates()) {
        candidates_.push_back({ std::move(seed), nullptr });
    }
    add_nodes(others, nodes.end());
}

/// Sends the query to a candidate. False: that is not possible.
bool MapSearch::try_candidate(std::size_t candidate) noexcept
try {
    const auto& [endpoint, node] = candidates_[candidate];
    Query& query = *queries_.emplace_back(std::make_unique<Query>(*this));
    query.routing.expires = loop_.now() + probe_options_.connect_timeout + probe_options_.timeout;
    query.server = node;
    if (node == nullptr || !node->ready()) {
        query.probe = std::make_unique<Server>(loop_, endpoint, probe_options_, no_scripts_, *this);
        query.server = query.probe.get();
        query.probe->start();
    }
    return query.server->send(query);
} catch (const std::exception&) {
    return false;
}

void MapSearch::answered(Query& query, const redisReply& reply)
{
    const auto map = read_cluster_slots(reply, query.endpoint());
    if (!map) {
        const bool empty = reply.type == REDIS_REPLY_ARRAY && reply.elements == 0;
        failed(
            query, empty ? "no slots are assigned yet" : "the reply to CLUSTER SLOTS is not a map");
        return;
    }
    if (const std::size_t masters = masters_in(*map); masters > most_masters_) {
        failed(
            query,
            "its map has " + std::to_string(masters) + " masters, expected at most "
                + std::to_string(most_masters_));
        return;
    }
    end();
    owner_.map_found(*map);
}

void MapSearch::failed(Query& query, std::string_view reason) noexcept
try {
    if (reason_.empty()) {
        reason_ = reason;
    }
    std::erase_if(queries_, [&query](const auto& each) { return each.get() == &query; });
    tries_.failed();
} catch (const std::exception&) {
    tries_.failed();  // out of memory: only the reason is missing
}

void MapSearch::exhausted() noexcept
{
    end();
    if (closed_) {
        return;
    }
    owner_.map_not_found(reason_);
    seeds_.look_up();
    want();
}

void MapSearch::server_down(Server&, std::string_view reason) noexcept
try {
    reason_ = reason;
} catch (const std::exception&) {
    // Out of memory: only the reason is missing.
}

void MapSearch::error_reply(Server& server, std::string_view text) noexcept
{
    server_down(server, text);  // reported once, when no candidate has a map
}

}  // namespace ratelimit::redis
