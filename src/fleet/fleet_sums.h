#pragma once

#include "fleet/node_report.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::fleet {

/// One node of a fleet.
struct FleetNode {
    std::string id;
    std::uint64_t heard_us = 0;  // since the epoch, by Redis's clock
    bool live = false;           // heard of within the last 5 seconds
    NodeReport report;
};

/// A zone in all live nodes.
struct FleetZone {
    std::string name;
    std::uint64_t nodes = 0;  // that have it
    std::uint64_t passed = 0;
    std::uint64_t refused = 0;
    std::uint64_t ahead = 0;          // the sum of the nodes'
    std::vector<std::string> limits;  // of the nodes, for people: each once, at most 8
    /// Nodes whose settings are not those of most nodes; all nodes if no settings are those of
    /// most.
    std::vector<std::string> settings_differ;
    /// A setting that differs, and the nodes as in `settings_differ`. Empty: no setting is known to
    /// differ.
    struct Difference {
        std::string_view setting;
        std::vector<std::string> nodes;
    };
    std::vector<Difference> differences;
    std::uint64_t highest_use = 0;  // of all nodes
};

/// What all nodes passed and refused in each of the last minutes.
struct FleetHistory {
    std::uint64_t start = 0;  // of the first minute, in seconds since the epoch
    std::vector<std::uint64_t> passed;
    std::vector<std::uint64_t> refused;
};

/// The minutes up to `now_s` that are known of a node; minutes that are unknown of one count
/// nothing. Nodes that are away are included.
FleetHistory sum_history(std::span<const FleetNode> nodes, std::uint64_t now_s);

/// In the order of their names.
std::vector<FleetZone> sum_zones(std::span<const FleetNode> nodes);

/// The keys that all live nodes together refuse most, in the order of is_busier, at most
/// `most_busiest`.
std::vector<NodeReport::RefusedKey> sum_busiest(std::span<const FleetNode> nodes);

}  // namespace ratelimit::fleet
