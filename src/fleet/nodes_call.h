#pragma once

#include "fleet/fleet_keys.h"
#include "fleet/fleet_sums.h"
#include "fleet/happenings.h"
#include "redis/call.h"
#include "redis/script_registry.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::fleet {

/// The nodes of a fleet as Redis has them, before their reports are read.
struct NodeList {
    struct Node {
        std::string id;
        std::uint64_t heard_us = 0;  // since the epoch, by Redis's clock
        std::string report;          // unchecked
    };
    /// A member of what Redis keeps of the last two days, unchecked, with its score.
    struct Past {
        std::string member;
        std::uint64_t at_us = 0;
    };

    std::uint64_t now_us = 0;       // by Redis's clock
    std::uint64_t nodes = 0;        // that Redis knows; some may be left out below, see NodesCall
    std::vector<Node> reported;     // the one that was heard of last first
    std::vector<Past> changes{};    // Happenings::add_change, the latest first
    std::vector<Past> forgotten{};  // Happenings::add_gone
    std::uint64_t changes_since_us = 0;  // older ones are not there; 0: there are none
};

inline constexpr std::uint64_t live_us = 5'000'000;

/// Reads the reports of a list in several parts, because those of a large fleet take milliseconds.
/// Left out are nodes without a readable report, nodes that said that they ended (fleet/leave), and
/// nodes that are away because they were restarted or upgraded: another one of their name began
/// after they were last heard of, or replaced their program. The work is bounded: nodes whose zones
/// are beyond `most_zones_of_all` are left out, too, and counted.
class NodesReader {
public:
    /// As many as fit into NodesCall::most_bytes, of nodes that are no attacker's.
    static constexpr std::size_t most_zones_of_all = 32'768;

    explicit NodesReader(NodeList list) : list_(std::move(list)) {}

    /// Reads reports of `bytes` at most, but at least one. True: there are more. Not to be called
    /// again after false.
    bool read(std::size_t bytes);

    const NodeList& list() const noexcept { return list_; }
    /// Complete when all reports have been read.
    std::vector<FleetNode>& nodes() noexcept { return nodes_; }
    /// The number of nodes without a readable report.
    std::uint64_t unreadable() const noexcept { return unreadable_; }
    /// The number of nodes that are left out because they ended or another one took their place.
    std::uint64_t gone() const noexcept { return gone_; }
    /// The number of nodes that Redis knows and that had no room in the list or here.
    std::uint64_t left_out() const noexcept
    {
        const std::uint64_t listed = list_.reported.size();
        return left_out_ + (list_.nodes > listed ? list_.nodes - listed : 0);
    }
    /// What happened to the nodes that are read, also those that are gone. Call once.
    Happenings take_happenings() { return std::move(happenings_); }
    /// What all nodes passed and refused, also those that are gone.
    const FleetHistories& history() const noexcept { return history_; }

private:
    NodeList list_;
    std::size_t next_ = 0;  // of `list_.reported`
    std::vector<FleetNode> nodes_;
    std::uint64_t unreadable_ = 0;
    std::uint64_t gone_ = 0;
    std::uint64_t left_out_ = 0;
    std::size_t room_ = most_zones_of_all;
    FleetHistories history_;
    Happenings happenings_;
};

/// The text of lua/fleet_nodes.lua.
redis::ScriptId add_nodes_script(redis::ScriptRegistry& scripts);

/// Asks Redis for the nodes of a fleet (lua/fleet_nodes.lua).
class NodesCall : public redis::Call {
public:
    static constexpr std::int64_t most_nodes = 1000;
    /// Of all reports in an answer. A report of 60 zones has 15 to 19 kB with its history, so 200
    /// to 260 such nodes fit.
    static constexpr std::int64_t most_bytes = 4'000'000;
    /// Members of each list of what happened, and their bytes: lua/fleet_nodes.lua.
    static constexpr std::int64_t most_past = 256;
    static constexpr std::int64_t most_past_bytes = 2 * most_past * 4096;

    NodesCall(redis::ScriptId script, const FleetKeys& keys);

    std::string_view routing_key() const noexcept final { return keys_.alive; }
    void write(redis::CommandBuffer& command) const final;
    std::size_t longest_reply() const noexcept final
    {
        return std::size_t{ 2 } * (most_bytes + most_past_bytes);
    }
    bool on_reply(const redisReply& reply) noexcept final;

protected:
    virtual void listed(NodeList list) noexcept = 0;

private:
    const redis::ScriptId script_;
    const FleetKeys keys_;
};

}  // namespace ratelimit::fleet
