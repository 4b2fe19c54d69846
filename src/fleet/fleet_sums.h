#pragma once

#include "fleet/node_report.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
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

/// Some of the nodes, by name.
struct NamedNodes {
    std::uint64_t count = 0;
    std::vector<std::string> names;  // in their order, of at most `most_named` of them
};
inline constexpr std::size_t most_named = 20;

/// A zone in all live nodes.
struct FleetZone {
    std::string name;
    std::uint64_t nodes = 0;  // that have it
    std::uint64_t passed = 0;
    std::uint64_t refused = 0;
    std::uint64_t would_refuse = 0;   // of those that passed, as in NodeReport::Zone
    std::uint64_t ahead = 0;          // the sum of the nodes'
    std::vector<std::string> limits;  // of the nodes, for people: each once, at most 8
    std::string settings;             // the digest of most nodes; empty: there is no such digest
    NamedNodes differ;                // nodes with another digest than `settings`
    /// A setting that differs, and the nodes as in `differ`. Empty: no setting is known to differ.
    struct Difference {
        std::string_view setting;
        NamedNodes nodes;
    };
    std::vector<Difference> differences;
    std::uint64_t highest_use = 0;  // of all nodes
};

/// What all nodes passed and refused in each of the last steps, by the index of `history_scales`.
using FleetHistories = std::array<NodeHistory, history_scales.size()>;

/// The steps up to `now_s` that are known of a node; steps that are unknown of one count nothing.
/// Nodes that are away are included.
FleetHistories sum_history(std::span<const FleetNode> nodes, std::uint64_t now_s);

/// Sums the zones of live nodes, in several parts: those of a large fleet take milliseconds. All
/// zones together name at most `most_names` nodes; beyond that nodes are only counted.
class ZoneSums {
public:
    static constexpr std::size_t most_names = 8192;

    /// The nodes must outlive this object, unchanged.
    explicit ZoneSums(std::span<const FleetNode> nodes) noexcept : nodes_(nodes) {}

    /// Reads about `zones` zones of nodes. True: there are more. Not to be called again after
    /// false.
    bool read(std::size_t zones);

    /// The next zone, in the order of their names. Empty: there are no more. Call when all are
    /// read.
    std::optional<FleetZone> next();

private:
    struct Of {
        const NodeReport* node;
        const NodeReport::Zone* zone;
    };
    using Names = std::vector<std::string_view>;
    using ByValue = std::map<std::string_view, Names>;

    NamedNodes named(Names names);
    std::vector<FleetZone::Difference> differences_of(std::span<const Of> all);

    std::span<const FleetNode> nodes_;
    std::size_t next_ = 0;  // of nodes_
    std::map<std::string_view, std::vector<Of>> zones_;
    std::size_t room_ = most_names;
};

/// The keys that all live nodes together refuse most, in the order of is_busier, at most
/// `most_busiest`.
std::vector<NodeReport::RefusedKey> sum_busiest(std::span<const FleetNode> nodes);

}  // namespace ratelimit::fleet
