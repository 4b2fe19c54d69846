#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::fleet {

/// What a node says of itself, once a second, and the others show.
struct NodeReport {
    struct Zone {
        std::string name;
        std::string settings;  // a digest of them
        std::string limit;     // for people, such as "100r/m"
        std::uint64_t passed = 0;
        std::uint64_t refused = 0;
        std::uint64_t ahead = 0;  // units of a key that the node may let in beyond the limit
    };
    /// A Redis server as the node sees it.
    struct Server {
        std::string redis;  // the ratelimit_redis block
        std::string server;
        std::string state;
        std::uint64_t workers_up = 0;
        std::uint64_t workers = 0;
    };
    struct RefusedKey {
        std::string zone;
        std::string id;  // the key as it is counted, percent-encoded
        std::uint64_t refused = 0;
        std::uint64_t per_1000_s = 0;  // that are refused now, in 1000 seconds
        std::uint64_t since = 0;       // the first refusal, seconds since the epoch

        /// Whether the left one is refused more: now, or else before.
        friend bool is_busier(const RefusedKey& left, const RefusedKey& right) noexcept
        {
            return left.per_1000_s != right.per_1000_s ? left.per_1000_s > right.per_1000_s
                                                       : left.refused > right.refused;
        }
    };

    std::string name;
    std::string version;
    std::string nginx;
    std::uint64_t uptime_us = 0;
    std::uint64_t process = 0;   // id of its master process
    std::uint64_t replaces = 0;  // that of the process whose program it replaces; 0: none
    std::uint64_t passed = 0;    // requests, in any zones
    std::uint64_t refused = 0;
    std::uint64_t zones_omitted = 0;  // beyond `most_zones`
    std::vector<Zone> zones;
    std::vector<Server> servers;
    std::vector<RefusedKey> busiest;
};

// What a report holds at most. Everything beyond is left out.
inline constexpr std::size_t most_zones = 256;
inline constexpr std::size_t most_servers = 32;
inline constexpr std::size_t most_busiest = 20;
inline constexpr std::size_t most_text = 384;  // bytes of one text
inline constexpr std::size_t most_report = std::size_t{ 128 } * 1024;

/// As JSON. Bytes that are not UTF-8 are replaced.
std::string write_report(const NodeReport& report);

/// Parses the report of a node of any version: unknown members are passed over, missing ones are
/// empty. Empty: it is no report, or too long.
std::optional<NodeReport> parse_report(std::string_view text);

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
};

/// In the order of their names.
std::vector<FleetZone> sum_zones(std::span<const FleetNode> nodes);

/// The keys that all live nodes together refuse most, in the order of is_busier, at most
/// `most_busiest`.
std::vector<NodeReport::RefusedKey> sum_busiest(std::span<const FleetNode> nodes);

}  // namespace ratelimit::fleet
