#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ratelimit::fleet {

/// What a node passed and refused in each step of time. The last step is not over.
struct NodeHistory {
    std::uint64_t start = 0;  // of the first step, seconds since the epoch
    std::vector<std::uint64_t> passed;
    std::vector<std::uint64_t> refused;
    std::vector<std::uint64_t> undecided;  // of those that passed; steps that it lacks have none
};

/// The steps of a NodeHistory, and the names of its members in a report.
struct HistoryScale {
    std::uint64_t step_s;
    std::size_t steps;  // at most
    std::string_view start;
    std::string_view passed;
    std::string_view refused;
    std::string_view undecided;
};
/// An hour, six hours and two days. A node of an older version has the first alone.
inline constexpr std::array history_scales = {
    HistoryScale{ 60, 60, "history_start", "history_passed", "history_refused",
                  "history_undecided" },
    HistoryScale{ 300, 72, "history_5m_start", "history_5m_passed", "history_5m_refused",
                  "history_5m_undecided" },
    HistoryScale{ 1800, 96, "history_30m_start", "history_30m_passed", "history_30m_refused",
                  "history_30m_undecided" },
};

/// What a node says of itself, once a second, and the others show.
struct NodeReport {
    struct Zone {
        std::string name;
        std::string settings;  // a digest of them
        std::string limit;     // for people, such as "100r/m"
        std::uint64_t passed = 0;
        std::uint64_t refused = 0;
        std::uint64_t ahead = 0;        // units of a key that the node may let in beyond the limit
        std::uint64_t highest_use = 0;  // of a key within the last hour, in percent of its limit
        /// A digest of each of `setting_names`, of `digits_of_setting` digits, in their order.
        std::string each_setting{};
        /// Of those that passed: a limit in shadow or in a dry run would have refused them. A node
        /// of an older version reports none.
        std::uint64_t would_refuse = 0;
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

    /// Redis was away for the node. Times are milliseconds since the epoch, by Redis's clock.
    struct Outage {
        std::uint64_t from_ms = 0;
        std::uint64_t to_ms = 0;  // 0: it lasts
        std::uint64_t times = 0;  // with less than a minute between them
    };
    /// The node loaded its configuration again.
    struct Load {
        std::uint64_t at_ms = 0;
        std::string text{};  // what it changed, such as "per_ip (rate)"; empty: no zone's settings
    };

    std::string name;
    std::string version;
    std::string nginx;
    std::uint64_t uptime_us = 0;
    std::uint64_t configured_us = 0;  // since it loaded its configuration; 0: an older version
    std::uint64_t process = 0;        // id of its master process
    std::uint64_t replaces = 0;       // that of the process whose program it replaces; 0: none
    std::uint64_t ended = 0;          // 1: the node has ended; added by lua/fleet_leave.lua
    std::uint64_t passed = 0;         // requests, in any zones
    std::uint64_t refused = 0;
    std::uint64_t undecided = 0;      // of those that passed: let in by ratelimit_fail_mode open
    std::uint64_t zones_omitted = 0;  // beyond `most_zones`; set with `zones`
    std::vector<Zone> zones;
    std::vector<Server> servers;
    std::vector<RefusedKey> busiest;
    std::vector<Outage> outages;  // the latest, the oldest first; so are the loads
    std::vector<Load> loads;
    std::array<NodeHistory, history_scales.size()> history;
};

// What a report holds at most. Everything beyond is left out.
inline constexpr std::size_t most_zones = 256;
inline constexpr std::size_t most_servers = 32;
inline constexpr std::size_t most_busiest = 20;
inline constexpr std::size_t most_past = 8;    // outages, and loads
inline constexpr std::size_t most_text = 384;  // bytes of one text
inline constexpr std::size_t most_name = 64;   // bytes of a node's name, as of node=
inline constexpr std::size_t most_report = std::size_t{ 128 } * 1024;

/// The settings of a zone that all nodes must have in common. Later versions may add names at the
/// end; the places of these stay.
inline constexpr std::array<std::string_view, 13> setting_names = {
    "key",      "algorithm", "rate",  "redis", "burst", "precision", "block",
    "hash_key", "clock",     "cache", "lease", "nodes", "ahead",
};
inline constexpr std::size_t digits_of_setting = 3;

/// As JSON. Bytes that are not UTF-8 are replaced.
std::string write_report(const NodeReport& report);

/// Parses the report of a node of any version: unknown members are passed over, missing ones are
/// empty, times that no calendar has are 0. Empty: it is no report, or too long.
std::optional<NodeReport> parse_report(std::string_view text);

}  // namespace ratelimit::fleet
