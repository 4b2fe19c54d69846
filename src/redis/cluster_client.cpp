#include "redis/cluster_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

class ClusterClient::MapQuery final : public CommandCall {
public:
    explicit MapQuery(ClusterClient& client)
        : CommandCall(plain_command({ "CLUSTER", "SLOTS" })), client_(client)
    {
    }
    bool delays_exit() const noexcept override { return false; }
    // The client may destroy this in both.
    void on_reply(const redisReply& reply) noexcept override
    {
        ClusterClient& client = client_;
        try {
            client.map_answered(reply);
        } catch (const std::exception&) {
            client.map_failed();
        }
    }
    void on_failure(Failure failure) noexcept override
    {
        if (client_.last_reason_.empty()) {
            client_.last_reason_ = describe(failure);
        }
        client_.map_failed();
    }

private:
    ClusterClient& client_;
};

ClusterClient::ClusterClient(const RouterParts& parts)
    : Router(parts),
      node_options_(options_.server),
      waiting_(loop_, records_, [](unsigned) {}),
      retired_(loop_, options_.server),
      seeds_(loop_, endpoints_of(options_)),
      probe_options_(options_.server),
      refresh_timer_(loop_.make_timer([this] { refresh(); }))
{
    node_options_.most_joint = 1;  // keys of one slot are seldom asked at once
    probe_options_.connections = 1;
    refresh_timer_->on_exit(Timer::OnExit::ignore);
}

ClusterClient::~ClusterClient()
{
    close();
}

void ClusterClient::start()
{
    refresh();
}

bool ClusterClient::send(Call& call)
{
    if (!known_) {
        if (!refreshing_) {
            return false;
        }
        waiting_.add(call, call.travel.expires);
        return true;
    }
    Server* node = slots_[hash_slot(call.routing_key())];
    if (node != nullptr && node->send(call)) {
        return true;
    }
    want_map();
    return false;
}

bool ClusterClient::refuses(std::string_view key) const noexcept
{
    const Server* node = known_ ? slots_[hash_slot(key)] : nullptr;
    return node != nullptr && node->refuses();
}

void ClusterClient::each_server(const std::function<void(Server&)>& visit)
{
    for (const auto& node : nodes_) {
        visit(*node);
    }
}

void ClusterClient::close() noexcept
{
    closed_ = true;
    refresh_timer_->stop();
    for (const auto& node : nodes_) {
        node->close();
    }
    if (probe_ != nullptr) {
        probe_->close();
    }
    retired_.close();
    waiting_.fail_all(Failure::connection);
}

std::uint32_t ClusterClient::place_of(std::string_view key) const noexcept
{
    return hash_slot(key);
}

bool ClusterClient::is_node(const Server& server) const noexcept
{
    return std::any_of(
        nodes_.begin(), nodes_.end(), [&](const auto& node) { return node.get() == &server; });
}

Server* ClusterClient::node_named(std::string_view name) const noexcept
{
    const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) {
        return node->endpoint().name == name;
    });
    return found == nodes_.end() ? nullptr : found->get();
}

/// The node, which is connected to when it is new.
Server& ClusterClient::node_at(const Endpoint& endpoint)
{
    if (Server* known = node_named(endpoint.name)) {
        known->announced_at(endpoint.host);
        return *known;
    }
    nodes_.push_back(std::make_unique<Server>(loop_, endpoint, node_options_, scripts_, *this));
    Server& node = *nodes_.back();
    node.start();
    return node;
}

void ClusterClient::server_up(Server& server) noexcept
{
    if (is_node(server)) {
        Router::server_up(server);
    }
}

void ClusterClient::server_down(Server& server, std::string_view reason) noexcept
{
    if (is_node(server)) {
        Router::server_down(server, reason);
        want_map();
    } else if (&server == probe_.get()) {
        last_reason_ = reason;
    }
}

void ClusterClient::error_reply(Server& server, std::string_view text) noexcept
{
    if (&server == probe_.get()) {
        last_reason_ = text;  // told once, when no candidate answers
        return;
    }
    Router::error_reply(server, text);
}

ErrorFate ClusterClient::fate_of(Server& server, Call* call, std::string_view error) noexcept
try {
    if (error.starts_with("TRYAGAIN")) {
        return ErrorFate::keys_apart;
    }
    if (error.starts_with("CLUSTERDOWN")) {
        want_map();
        return ErrorFate::refused;
    }
    const auto redirection = read_redirection(error, server.endpoint());
    if (!redirection) {
        return ErrorFate::refused;
    }
    if (!redirection->asking) {
        want_map();
    }
    if (call == nullptr || closed_) {
        return ErrorFate::unreachable;
    }
    return pass_on(*call, *redirection);
} catch (const std::exception&) {
    return ErrorFate::refused;
}

ErrorFate ClusterClient::pass_on(Call& call, const Redirection& redirection)
{
    if (++call.travel.redirections > most_redirections) {
        return ErrorFate::refused;
    }
    Server& node = node_at(redirection.target);
    if (!redirection.asking) {
        slots_[redirection.slot] = &node;
    }
    call.travel.asking = redirection.asking;
    return node.send(call) ? ErrorFate::redirected : ErrorFate::unreachable;
}

void ClusterClient::want_map() noexcept
{
    if (refreshing_ || closed_ || refresh_timer_->running()) {
        return;
    }
    const milliseconds due = last_refresh_ + refresh_pause;
    refresh_timer_->start(std::max(due - loop_.now(), milliseconds{ 1 }));
}

void ClusterClient::refresh()
{
    refreshing_ = true;
    last_refresh_ = loop_.now();
    last_reason_.clear();
    candidates_.clear();
    next_candidate_ = 0;

    // The nodes that can answer at once, from another one on each time; then all others.
    const auto turn = static_cast<std::size_t>(last_refresh_.count());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
        const Server& node = *nodes_[(turn + i) % nodes_.size()];
        if (node.ready()) {
            candidates_.push_back(node.endpoint());
        }
    }
    candidates_.insert(candidates_.end(), seeds_.endpoints().begin(), seeds_.endpoints().end());
    for (const auto& node : nodes_) {
        if (!node->ready()) {
            candidates_.push_back(node->endpoint());
        }
    }
    ask_next();
}

void ClusterClient::ask_next()
{
    retired_.add(std::move(probe_));
    while (next_candidate_ < candidates_.size() && !closed_) {
        asked_ = candidates_[next_candidate_++];
        query_ = std::make_unique<MapQuery>(*this);
        Server* server = node_named(asked_.name);
        if (server == nullptr || !server->ready()) {
            probe_ = std::make_unique<Server>(loop_, asked_, probe_options_, no_scripts_, *this);
            server = probe_.get();
            server->start();
        }
        if (server->send(*query_)) {
            return;
        }
        retired_.add(std::move(probe_));
    }
    refreshing_ = false;
    waiting_.fail_all(Failure::connection);
    if (closed_) {
        return;
    }
    seeds_.look_up();
    if (!std::exchange(unknown_told_, true)) {
        events_.servers_unknown(last_reason_);
    }
    refresh_timer_->start(refresh_pause);
}

void ClusterClient::map_failed() noexcept
try {
    ask_next();
} catch (const std::exception&) {
    refreshing_ = false;  // out of memory: asked again when a call needs it
    want_map();
}

void ClusterClient::map_answered(const redisReply& reply)
{
    const auto map = read_cluster_slots(reply, asked_);
    if (!map) {
        last_reason_ = "CLUSTER SLOTS was not answered with a map";
        ask_next();
        return;
    }
    retired_.add(std::move(probe_));
    refreshing_ = false;
    use_map(*map);
    tell_map(*map);
    known_ = true;
    waiting_.release([this](Call& call) { return send(call); });
}

void ClusterClient::use_map(std::span<const SlotRange> map)
{
    slots_.fill(nullptr);
    for (const SlotRange& range : map) {
        std::fill(
            slots_.begin() + range.first, slots_.begin() + range.last + 1, &node_at(range.master));
    }
    const std::set<const Server*> used(slots_.begin(), slots_.end());
    const auto unused = std::partition(
        nodes_.begin(), nodes_.end(), [&](const auto& node) { return used.contains(node.get()); });
    for (auto node = unused; node != nodes_.end(); ++node) {
        retired_.add(std::move(*node));
    }
    nodes_.erase(unused, nodes_.end());
}

/// Tells the owner, when the masters are others than before.
void ClusterClient::tell_map(std::span<const SlotRange> map)
{
    std::set<std::string_view> masters;
    for (const SlotRange& range : map) {
        masters.insert(range.master.name);
    }
    std::string text = "cluster of " + std::to_string(masters.size()) + " masters:";
    for (const std::string_view name : masters) {
        text += " ";
        text += name;
    }
    if (std::exchange(unknown_told_, false) || text != told_map_) {
        told_map_ = std::move(text);
        events_.servers_known(told_map_);
    }
}

}  // namespace ratelimit::redis
