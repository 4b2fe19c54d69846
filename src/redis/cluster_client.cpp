#include "redis/cluster_client.h"

#include "redis/error_table.h"

#include <algorithm>
#include <utility>

namespace ratelimit::redis {

ClusterClient::ClusterClient(ClientParts parts)
    : Client(std::move(parts)),
      retired_(loop_, options_.server),
      search_(loop_, options_, *this),
      retry_timer_(loop_.make_timer([this] { retry_waiting(); }))
{
}

void ClusterClient::disconnect() noexcept
{
    retry_timer_->stop();
    search_.close();
    retired_.close();
}

bool ClusterClient::route(Call& call)
{
    if (!known()) {
        if (!search_.running()) {
            return false;
        }
        waiting_.add(call);
        return true;
    }
    Server* owner = slots_[*call.routing.shard];
    // A call must not wait for a connection to a node that is away: it would miss the takeover.
    const bool usable = owner != nullptr && (owner->ready() || !owner->away());
    if (usable && owner->send(call)) {
        return true;
    }
    search_.want();
    return send_elsewhere(call) || wait(call);
}

bool ClusterClient::may_be_taken_over(const Server& server) const noexcept
{
    const auto takeover = takeovers_.find(&server);
    return takeover != takeovers_.end() && takeover->second.window.is_open(loop_.now());
}

void ClusterClient::each_server(const std::function<void(Server&)>& visit)
{
    for (const auto& [name, node] : nodes_) {
        visit(*node);
    }
}

Server* ClusterClient::server_at(std::uint32_t shard) const noexcept
{
    return slots_[shard];
}

/// Derived from the name, because the workers may discover the nodes in different orders.
std::optional<std::uint32_t> ClusterClient::number_of(const Server& server) const noexcept
{
    const std::string_view name = server.endpoint().name;
    const auto found = nodes_.find(name);
    const bool in_use = found != nodes_.end() && found->second.get() == &server;
    return in_use ? std::optional(static_cast<std::uint32_t>(std::hash<std::string_view>{}(name)))
                  : std::nullopt;
}

/// Returns the node. If it is new, adds it and connects.
Server& ClusterClient::node_at(const Endpoint& endpoint)
{
    const auto known = nodes_.find(endpoint.name);
    if (known != nodes_.end()) {
        known->second->announced_at(endpoint.host);
        return *known->second;
    }
    auto node = std::make_unique<Server>(loop_, endpoint, options_.server, scripts_, *this);
    Server& added = *node;
    nodes_.emplace(endpoint.name, std::move(node));
    added.start();
    return added;
}

ErrorClass ClusterClient::classify_error(
    Server& server, Call* call, std::string_view error) noexcept
try {
    if (call != nullptr && !call->routing.shard) {
        return ErrorClass::refused;  // it has no slot: a request for the map, or a probe
    }
    const Next next = rule_of(error).cluster;
    if (next == Next::one_by_one) {
        return ErrorClass::slot_migrating;
    }
    if (next == Next::wait) {
        return cluster_down(server, call, error);
    }
    const auto redirection = read_redirection(error, server.endpoint());
    if (!redirection) {
        return ErrorClass::refused;
    }
    if (!redirection->asking) {
        search_.want();
    }
    if (call == nullptr || !open()) {
        return ErrorClass::unreachable;
    }
    return pass_on(*call, *redirection);
} catch (const std::exception&) {
    return ErrorClass::refused;
}

/// The node that replied is up: another one is away, whose slots have no server yet; or the node is
/// cut off from the others, and another one has its slots.
ErrorClass ClusterClient::cluster_down(Server& server, Call* call, std::string_view error) noexcept
{
    search_.want();
    if (errors_.add(error, loop_.now())) {
        error_reply(server, error);
    }
    const bool sent = call != nullptr && (send_elsewhere(*call) || wait(*call));
    return sent ? ErrorClass::redirected : ErrorClass::unreachable;
}

ErrorClass ClusterClient::pass_on(Call& call, const Redirection& redirection)
{
    if (++call.routing.redirections > most_redirections) {
        return ErrorClass::refused;
    }
    if (!nodes_.contains(redirection.target.name) && nodes_.size() >= options_.most_masters) {
        return ErrorClass::unreachable;
    }
    Server& node = node_at(redirection.target);
    if (redirection.asking) {
        asked_[&node] = loop_.now();
    } else {
        moved(redirection.slot, node);
    }
    call.routing.asking = redirection.asking;
    if (node.send(call)) {
        return ErrorClass::redirected;
    }
    return wait(call) ? ErrorClass::redirected : ErrorClass::unreachable;
}

/// MOVED: the slot has another owner. If the old one is away or cut off, its replica has taken over
/// all its slots.
void ClusterClient::moved(std::uint16_t slot, Server& owner)
{
    Server* const old = slots_[slot];
    if (old == nullptr || old == &owner) {
        slots_[slot] = &owner;
        outbox().servers_changed();
        return;
    }
    const auto tried = takeovers_.find(old);
    const bool cut_off =
        tried != takeovers_.end() && loop_.now() - tried->second.sent_elsewhere_at < retry_pause;
    const bool all = old->away() || cut_off;
    if (all || std::find(slots_.begin(), slots_.end(), &owner) == slots_.end()) {
        taken_over(*old);
    }
    owner.clock().takes_over_from(old->clock());
    slots_[slot] = &owner;
    outbox().servers_changed();
    if (all) {
        std::replace(slots_.begin(), slots_.end(), old, &owner);
        retry_waiting_soon();
    }
}

/// Another node has slots of this one. If it had none before, it may be a replica that lacks the
/// latest writes, also if this one still answers. To be called before slots_ changes, since the
/// keys of a slot are found by its owner.
void ClusterClient::taken_over(Server& old) noexcept
{
    if (old.away()) {
        old.replaced();
    }
    server_reconnected(old);
}

/// Sends a call whose owner is away or cut off to another node, whose MOVED names the new owner.
/// False: no node is ready, or one was tried less than retry_pause ago.
bool ClusterClient::send_elsewhere(Call& call)
{
    const Server* owner = slots_[*call.routing.shard];
    Takeover& takeover = takeovers_[owner];
    if (loop_.now() - takeover.sent_elsewhere_at < retry_pause) {
        return false;
    }
    call.routing.asking = false;
    for (const auto& [name, node] : nodes_) {
        if (node.get() != owner && node->ready() && !node->refuses() && node->send(call)) {
            takeover.sent_elsewhere_at = loop_.now();
            return true;
        }
    }
    return false;
}

bool ClusterClient::wait(Call& call) noexcept
try {
    const bool waits = Client::wait(call, takeovers_[slots_[*call.routing.shard]].window);
    if (waits && !retry_timer_->running()) {
        retry_timer_->start(retry_pause);
    }
    return waits;
} catch (const std::exception&) {
    return false;
}

void ClusterClient::retry_waiting_soon() noexcept
{
    if (retry_timer_->running()) {
        retry_timer_->start(milliseconds{ 1 });
    }
}

void ClusterClient::map_found(std::span<const SlotRange> map)
{
    use_map(map);
    std::set<const Server*> owners(slots_.begin(), slots_.end());
    owners.erase(nullptr);
    retire_unused(owners);
    report_masters(owners);
    if (std::any_of(
            nodes_.begin(), nodes_.end(), [](const auto& node) { return node.second->away(); })) {
        search_.want();
    }
    retry_waiting();
}

void ClusterClient::use_map(std::span<const SlotRange> map)
{
    // A slot that the map leaves out keeps its owner: in a takeover a node may know for a moment
    // that the old master has no slots, and not which one has them. The old one does.
    std::array<Server*, slot_count> owners = slots_;
    // In a fragmented map, a master has many ranges. Each master is looked up once.
    std::map<std::string_view, Server*> masters;
    for (const SlotRange& range : map) {
        Server*& master = masters[range.master.name];
        if (master == nullptr) {
            master = &node_at(range.master);
        }
        std::fill(owners.begin() + range.first, owners.begin() + range.last + 1, master);
    }
    const std::set<const Server*> had_slots(slots_.begin(), slots_.end());
    std::set<std::pair<Server*, Server*>> moves;
    for (std::size_t slot = 0; slot < slot_count; ++slot) {
        Server* const old = slots_[slot];
        Server* const owner = owners[slot];
        if (old != nullptr && owner != old) {
            moves.emplace(old, owner);
        }
    }
    std::set<Server*> replaced;
    for (const auto& [old, owner] : moves) {
        owner->clock().takes_over_from(old->clock());
        if (old->away() || !had_slots.contains(owner)) {
            replaced.insert(old);
        }
    }
    for (Server* old : replaced) {
        taken_over(*old);
    }
    slots_ = owners;
    outbox().servers_changed();
}

/// Retires the nodes without slots, except those that ASK named within the last minute.
void ClusterClient::retire_unused(const std::set<const Server*>& owners)
{
    std::erase_if(asked_, [&](const auto& each) {
        return owners.contains(each.first) || loop_.now() - each.second > asked_lasts;
    });
    for (auto node = nodes_.begin(); node != nodes_.end();) {
        const Server* const server = node->second.get();
        if (owners.contains(server) || asked_.contains(server)) {
            ++node;
            continue;
        }
        takeovers_.erase(server);
        retired_.add(std::move(node->second));
        node = nodes_.erase(node);
    }
}

void ClusterClient::report_masters(const std::set<const Server*>& owners)
{
    std::string names;
    for (const auto& [name, node] : nodes_) {
        names += owners.contains(node.get()) ? " " + name : "";
    }
    servers_known("cluster of " + std::to_string(owners.size()) + " masters:" + names);
}

}  // namespace ratelimit::redis
