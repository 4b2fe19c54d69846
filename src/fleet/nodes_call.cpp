#include "fleet/nodes_call.h"

#include "redis/command.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <hiredis/hiredis.h>
#include <map>

#include "lua_scripts.h"

namespace ratelimit::fleet {

namespace {

constexpr std::uint64_t us_a_second = 1'000'000;

std::string_view text_of(const redisReply& reply) noexcept
{
    return { reply.str, reply.len };
}

/// Also of a score of a sorted set, which is written as "1.8e+15" or with decimals if it is large.
std::uint64_t time_of(std::string_view text) noexcept
{
    double time = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
    constexpr double most = 9e15;
    return error == std::errc{} && time > 0 && time < most ? static_cast<std::uint64_t>(time) : 0;
}

/// Removes the text up to the next zero byte, and that byte, from the front; returns the text.
std::string_view take_text(std::string_view& text) noexcept
{
    const auto end = text.find('\0');
    const auto part = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return part;
}

/// When the node began, in seconds since the epoch.
std::int64_t began(const FleetNode& node) noexcept
{
    return static_cast<std::int64_t>(node.heard_us / us_a_second)
        - static_cast<std::int64_t>(node.report.uptime);
}

/// Removes nodes that are away if a live node has their name and began later.
void remove_replaced(std::vector<FleetNode>& nodes)
{
    std::map<std::string, std::int64_t> latest;  // of the live nodes of a name
    for (const FleetNode& node : nodes) {
        if (node.live) {
            auto& time = latest.try_emplace(node.report.name, began(node)).first->second;
            time = std::max(time, began(node));
        }
    }
    std::erase_if(nodes, [&latest](const FleetNode& node) {
        const auto found = latest.find(node.report.name);
        return !node.live && found != latest.end() && found->second > began(node);
    });
}

}  // namespace

std::string NodeList::packed(std::size_t room) const
{
    std::string text;
    const auto add = [&text](std::string_view part) {
        text += part;
        text += '\0';
    };
    add(std::to_string(now_us));
    add(std::to_string(nodes));
    for (const Node& node : reported) {
        // A zero byte is in no id and no report, but Redis may have anything.
        const bool whole =
            node.id.find('\0') == std::string::npos && node.report.find('\0') == std::string::npos;
        const std::size_t before = text.size();
        add(node.id);
        add(std::to_string(node.heard_us));
        add(node.report);
        if (!whole || text.size() > room) {
            text.resize(before);
        }
    }
    return text.size() <= room ? text : std::string{};
}

NodeList NodeList::unpacked(std::string_view text)
{
    NodeList list;
    list.now_us = time_of(take_text(text));
    list.nodes = time_of(take_text(text));
    while (!text.empty() && list.reported.size() < NodesCall::most_nodes) {
        const auto id = take_text(text);
        const auto heard = time_of(take_text(text));
        list.reported.push_back({ std::string(id), heard, std::string(take_text(text)) });
    }
    return list;
}

bool NodesReader::read(std::size_t bytes)
{
    for (std::size_t done = 0; next_ < list_.reported.size(); ++next_) {
        const NodeList::Node& node = list_.reported[next_];
        if (done > 0 && done + node.report.size() > bytes) {
            return true;
        }
        done += node.report.size() + 1;
        if (auto report = parse_report(node.report)) {
            const bool live =
                node.heard_us + live_us >= list_.now_us && list_.now_us + live_us >= node.heard_us;
            nodes_.push_back(
                { node.id.substr(0, most_text), node.heard_us, live, std::move(*report) });
        } else {
            ++unreadable_;
        }
    }
    remove_replaced(nodes_);
    return false;
}

redis::ScriptId add_nodes_script(redis::ScriptRegistry& scripts)
{
    return scripts.add(std::string(lua::fleet_nodes));
}

NodesCall::NodesCall(redis::ScriptId script, std::string alive, std::string nodes)
    : script_(script), alive_(std::move(alive)), nodes_(std::move(nodes))
{
    repeatable = true;
}

void NodesCall::write(redis::CommandBuffer& command) const
{
    command.begin_script(script_, { 2, 3 });
    command.key(alive_);
    command.key(nodes_);
    command.arg(most_nodes);
    command.arg(most_bytes);
    command.arg(static_cast<std::int64_t>(most_report));
}

bool NodesCall::on_reply(const redisReply& reply) noexcept
try {
    constexpr std::size_t head = 2;
    constexpr std::size_t each = 3;
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < head
        || (reply.elements - head) % each != 0 || reply.element[0]->type != REDIS_REPLY_INTEGER
        || reply.element[1]->type != REDIS_REPLY_INTEGER) {
        return false;
    }
    NodeList list;
    list.now_us = static_cast<std::uint64_t>(reply.element[0]->integer);
    list.nodes = static_cast<std::uint64_t>(reply.element[1]->integer);
    for (std::size_t i = head; i < reply.elements; i += each) {
        for (std::size_t j = i; j < i + each; ++j) {
            if (reply.element[j]->type != REDIS_REPLY_STRING) {
                return false;
            }
        }
        list.reported.push_back({ std::string(text_of(*reply.element[i])),
                                  time_of(text_of(*reply.element[i + 1])),
                                  std::string(text_of(*reply.element[i + 2])) });
    }
    listed(std::move(list));
    return true;
} catch (const std::exception&) {
    return false;  // out of memory
}

}  // namespace ratelimit::fleet
