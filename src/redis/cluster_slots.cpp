#include "redis/cluster_slots.h"

#include "redis/hash_slot.h"
#include "redis/reply_text.h"

#include <charconv>
#include <span>

#include <hiredis/hiredis.h>

namespace ratelimit::redis {

namespace {

using Elements = std::span<redisReply* const>;

Elements elements_of(const redisReply& reply)
{
    if (reply.type != REDIS_REPLY_ARRAY) {
        return {};
    }
    return { reply.element, reply.elements };
}

/// The "ip" of a node that is announced by its name (Redis 7). Empty: none.
std::string_view address_of(Elements node)
{
    if (node.size() < 4) {
        return {};
    }
    const Elements facts = elements_of(*node[3]);
    for (std::size_t i = 0; i + 1 < facts.size(); i += 2) {
        if (text_of(*facts[i]) == "ip") {
            return text_of(*facts[i + 1]);
        }
    }
    return {};
}

std::optional<Endpoint> read_node(const redisReply& reply, const Endpoint& sender)
{
    const Elements node = elements_of(reply);
    if (node.size() < 2 || node[1]->type != REDIS_REPLY_INTEGER || node[1]->integer < 1
        || node[1]->integer > 65535) {
        return std::nullopt;
    }
    const auto port = static_cast<std::uint16_t>(node[1]->integer);
    const auto host = text_of(*node[0]);
    if (host == "?" && is_numeric_address(address_of(node))) {
        return announced_endpoint(address_of(node), port);  // the node has no name
    }
    if (host.empty() || host == "?") {
        return announced_endpoint(sender.host_name, port, sender.host);
    }
    if (!can_be_host(host)) {
        return std::nullopt;
    }
    return announced_endpoint(host, port, address_of(node));
}

bool is_slot(const redisReply& reply)
{
    return reply.type == REDIS_REPLY_INTEGER && reply.integer >= 0
        && reply.integer < static_cast<long long>(slot_count);
}

std::optional<SlotRange> read_range(const redisReply& reply, const Endpoint& sender)
{
    const Elements range = elements_of(reply);
    if (range.size() < 3 || !is_slot(*range[0]) || !is_slot(*range[1])
        || range[0]->integer > range[1]->integer) {
        return std::nullopt;
    }
    auto master = read_node(*range[2], sender);
    if (!master) {
        return std::nullopt;
    }
    return SlotRange{ static_cast<std::uint16_t>(range[0]->integer),
                      static_cast<std::uint16_t>(range[1]->integer), std::move(*master) };
}

}  // namespace

std::optional<std::vector<SlotRange>> read_cluster_slots(
    const redisReply& reply, const Endpoint& sender)
{
    std::vector<SlotRange> ranges;
    if (elements_of(reply).size() > slot_count) {
        return std::nullopt;
    }
    std::size_t slots = 0;
    for (const redisReply* element : elements_of(reply)) {
        auto range = read_range(*element, sender);
        if (!range) {
            return std::nullopt;
        }
        // Ranges that overlap would make a map that takes long to use.
        slots += std::size_t{ range->last } - range->first + 1;
        if (slots > slot_count) {
            return std::nullopt;
        }
        ranges.push_back(std::move(*range));
    }
    if (ranges.empty()) {
        return std::nullopt;
    }
    return ranges;
}

std::optional<Redirection> read_redirection(std::string_view error, const Endpoint& sender)
{
    constexpr std::string_view moved = "MOVED ";
    constexpr std::string_view ask = "ASK ";
    Redirection redirection;
    redirection.asking = error.starts_with(ask);
    if (!redirection.asking && !error.starts_with(moved)) {
        return std::nullopt;
    }
    error.remove_prefix(redirection.asking ? ask.size() : moved.size());
    const char* end = error.data() + error.size();
    const auto slot = std::from_chars(error.data(), end, redirection.slot);
    if (slot.ec != std::errc{} || redirection.slot >= slot_count || slot.ptr == end
        || *slot.ptr != ' ') {
        return std::nullopt;
    }
    const char* target = slot.ptr + 1;
    auto endpoint = parse_endpoint({ target, static_cast<std::size_t>(end - target) }, sender);
    if (!endpoint) {
        return std::nullopt;
    }
    redirection.target = std::move(*endpoint);
    return redirection;
}

}  // namespace ratelimit::redis
