#include "fleet/nodes_call.h"

#include "redis/command.h"
#include "redis/reply_text.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <hiredis/hiredis.h>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "lua_scripts.h"

namespace ratelimit::fleet {

namespace {

constexpr std::int64_t latest_us = 9'000'000'000'000'000;  // in the year 2255

/// Also of a score of a sorted set, which is written as "1.8e+15" or with decimals if it is large.
std::uint64_t time_of(std::string_view text) noexcept
{
    double time = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), time);
    constexpr auto most = static_cast<double>(latest_us);
    return error == std::errc{} && time > 0 && time < most ? static_cast<std::uint64_t>(time) : 0;
}

/// Reads members with their scores. False: they are none.
bool read_past(const redisReply& reply, std::vector<NodeList::Past>& past)
{
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements % 2 != 0) {
        return false;
    }
    for (std::size_t i = 0; i < reply.elements; i += 2) {
        const redisReply& member = *reply.element[i];
        const redisReply& score = *reply.element[i + 1];
        if (member.type != REDIS_REPLY_STRING || score.type != REDIS_REPLY_STRING) {
            return false;
        }
        past.push_back({ std::string(redis::text_of(member)), time_of(redis::text_of(score)) });
    }
    return true;
}

/// When the node began, in microseconds since the epoch; or, since its report was on its way to
/// Redis, a little later.
std::int64_t began(const FleetNode& node) noexcept
{
    return static_cast<std::int64_t>(node.heard_us)
        - static_cast<std::int64_t>(node.report.uptime_us);
}

/// A node of a name begins, or was last heard of.
struct Moment {
    std::int64_t at = 0;  // microseconds since the epoch
    bool begins = false;
    std::size_t node = 0;

    friend bool operator<(const Moment& left, const Moment& right) noexcept
    {
        return std::tie(left.at, left.begins, left.node)
            < std::tie(right.at, right.begins, right.node);
    }
};

/// Which nodes of one name are away because another one took their place: it was started by an
/// upgrade of their program, or it began after they were last heard of. One takes the place of one:
/// two nodes of one name are two.
std::vector<std::size_t> replaced(
    const std::vector<FleetNode>& nodes, std::span<const std::size_t> of_name)
{
    std::vector<std::size_t> found;
    std::vector<Moment> moments;
    std::map<std::uint64_t, std::size_t> away;  // by process
    for (const std::size_t i : of_name) {
        if (!nodes[i].live && nodes[i].report.process != 0) {
            away.insert_or_assign(nodes[i].report.process, i);
        }
    }
    std::set<std::size_t> upgraded;
    for (const std::size_t i : of_name) {
        const auto before = away.find(nodes[i].report.replaces);
        if (before != away.end() && before->second != i) {
            upgraded.insert(before->second);
        }
        if (nodes[i].report.replaces == 0) {
            moments.push_back({ began(nodes[i]), true, i });
        }
    }
    for (const std::size_t i : of_name) {
        if (upgraded.contains(i)) {
            found.push_back(i);
        } else if (!nodes[i].live) {
            moments.push_back({ static_cast<std::int64_t>(nodes[i].heard_us), false, i });
        }
    }
    std::sort(moments.begin(), moments.end());
    std::vector<std::size_t> ended;
    for (const Moment& moment : moments) {
        if (!moment.begins) {
            ended.push_back(moment.node);
            continue;
        }
        const auto last = std::find_if(
            ended.rbegin(), ended.rend(), [&](std::size_t node) { return node != moment.node; });
        if (last != ended.rend()) {
            found.push_back(*last);
            ended.erase(std::next(last).base());
        }
    }
    return found;
}

/// Removes nodes that ended, and nodes that are away because another one took their place. Returns
/// how many. Of nodes with one name, the one that ended is the one that was replaced.
std::size_t remove_gone(std::vector<FleetNode>& nodes)
{
    std::map<std::string_view, std::vector<std::size_t>> names;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        names[nodes[i].report.name].push_back(i);
    }
    std::vector<bool> gone(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        gone[i] = nodes[i].report.ended != 0;
    }
    for (const auto& [name, of_name] : names) {
        for (const std::size_t i : replaced(nodes, of_name)) {
            gone[i] = true;
        }
    }
    std::size_t place = 0;
    return std::erase_if(nodes, [&](const FleetNode&) { return gone[place++]; });
}

}  // namespace

bool NodesReader::read(std::size_t bytes)
{
    for (std::size_t done = 0; next_ < list_.reported.size(); ++next_) {
        const NodeList::Node& node = list_.reported[next_];
        if (done > 0 && done + node.report.size() > bytes) {
            return true;
        }
        done += node.report.size() + 1;
        auto report = parse_report(node.report);
        if (report && report->zones.size() > room_) {
            ++left_out_;
        } else if (report) {
            room_ -= report->zones.size();
            const bool live = report->ended == 0 && node.heard_us + live_us >= list_.now_us
                && list_.now_us + live_us >= node.heard_us;
            nodes_.push_back(
                { node.id.substr(0, most_text), node.heard_us, live, std::move(*report) });
            happenings_.add(nodes_.back());
        } else {
            ++unreadable_;
        }
    }
    history_ = sum_history(nodes_, list_.now_us / 1'000'000);
    gone_ = remove_gone(nodes_);
    return false;
}

redis::ScriptId add_nodes_script(redis::ScriptRegistry& scripts)
{
    return scripts.add(std::string(lua::fleet_nodes));
}

NodesCall::NodesCall(redis::ScriptId script, const FleetKeys& keys) : script_(script), keys_(keys)
{
    repeatable = true;
}

void NodesCall::write(redis::CommandBuffer& command) const
{
    const auto all = { &keys_.alive, &keys_.nodes, &keys_.journal, &keys_.gone };
    command.begin_script(script_, { all.size(), 3 });
    for (const std::string* key : all) {
        command.key(*key);
    }
    command.arg(most_nodes);
    command.arg(most_bytes);
    command.arg(static_cast<std::int64_t>(most_report));
}

bool NodesCall::on_reply(const redisReply& reply) noexcept
try {
    constexpr std::size_t head = 5;
    constexpr std::size_t each = 3;
    if (reply.type != REDIS_REPLY_ARRAY || reply.elements < head
        || (reply.elements - head) % each != 0) {
        return false;
    }
    const std::span elements(reply.element, reply.elements);
    const bool are_numbers =
        std::all_of(elements.begin(), elements.begin() + 3, [](const redisReply* element) {
            return element->type == REDIS_REPLY_INTEGER && element->integer >= 0
                && element->integer <= latest_us;
        });
    NodeList list;
    if (!are_numbers || !read_past(*elements[3], list.changes)
        || !read_past(*elements[4], list.forgotten)) {
        return false;
    }
    list.now_us = static_cast<std::uint64_t>(elements[0]->integer);
    list.nodes = static_cast<std::uint64_t>(elements[1]->integer);
    list.changes_since_us = static_cast<std::uint64_t>(elements[2]->integer);
    for (std::size_t i = head; i < reply.elements; i += each) {
        for (std::size_t j = i; j < i + each; ++j) {
            if (reply.element[j]->type != REDIS_REPLY_STRING) {
                return false;
            }
        }
        list.reported.push_back({ std::string(redis::text_of(*reply.element[i])),
                                  time_of(redis::text_of(*reply.element[i + 1])),
                                  std::string(redis::text_of(*reply.element[i + 2])) });
    }
    listed(std::move(list));
    return true;
} catch (const std::exception&) {
    return false;  // out of memory
}

}  // namespace ratelimit::fleet
