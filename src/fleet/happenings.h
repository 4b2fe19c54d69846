#pragma once

#include "fleet/fleet_sums.h"

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace ratelimit::fleet {

/// An event of a fleet. Events of many nodes at about one time are one. Times are microseconds
/// since the epoch, by Redis's clock.
struct Happening {
    enum class What : std::uint8_t {
        redis_away,
        started,
        ended,
        away,  // a node was not heard of any more
        loaded,
        set,
        taken_back,
        freed,
    };

    What what = What::started;
    std::uint64_t at = 0;
    std::uint64_t until = 0;  // of the last node; 0: it lasts
    std::uint64_t times = 1;  // redis_away: of the node that had most
    NamedNodes nodes;
    std::string text;  // loaded: NodeReport::Load::text; a change: that of parse_stored
    std::string zone;  // of a change; so is the key, empty for a whole zone
    std::string key;

    bool is_change() const noexcept { return what >= What::set; }
};

/// Puts together what nodes say of themselves (NodeReport) and what Redis keeps of changes and of
/// nodes that it has forgotten (lua/fleet_nodes.lua). Its size is bounded by theirs.
class Happenings {
public:
    static constexpr std::uint64_t kept_us = std::uint64_t{ 2 } * 24 * 3600 * 1'000'000;
    static constexpr std::size_t most = 300;

    /// Adds a node's report, and how it ended.
    void add(const FleetNode& node);
    /// A member of Redis's journal, whose version is the time in microseconds, and one of its list
    /// of nodes that are gone, last heard of at `heard_us`. Text that no node wrote is passed over.
    void add_change(std::string_view member, std::uint64_t version);
    void add_gone(std::string_view member, std::uint64_t heard_us);

    /// Merges some of the events of the two days before `now_us`: all at once would take
    /// milliseconds. Call when all are added, until it returns false: there are no more.
    bool merge(std::size_t items, std::uint64_t now_us);
    /// Call once, when all are merged. The one that ended last first, `most` at most.
    std::vector<Happening> latest() &&;

private:
    /// Events that may be merged are neighbours, in the order of time.
    struct Order {
        bool operator()(const Happening& left, const Happening& right) const noexcept;
    };

    std::multiset<Happening, Order> added_;  // each of one node
    std::vector<Happening> merged_;
    std::unordered_set<std::string> names_;  // of the nodes of the last one in it
};

}  // namespace ratelimit::fleet
