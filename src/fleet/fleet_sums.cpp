#include "fleet/fleet_sums.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

namespace ratelimit::fleet {

namespace {

using Names = std::vector<std::string_view>;  // of nodes

/// Names of nodes by what they have. Returns those that have not what most have; all if there is no
/// such thing.
std::vector<std::string> minority(const std::map<std::string_view, Names>& by_value)
{
    std::size_t most = 0;
    std::size_t with_most = 0;
    for (const auto& [value, names] : by_value) {
        with_most = names.size() > most ? 1 : with_most + (names.size() == most ? 1 : 0);
        most = std::max(most, names.size());
    }
    std::vector<std::string> found;
    for (const auto& [value, names] : by_value) {
        if (names.size() < most || with_most > 1) {
            found.insert(found.end(), names.begin(), names.end());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

/// Which settings of the zone differ. A node of a version that does not say so is left out.
std::vector<FleetZone::Difference> differences_of(
    std::span<const FleetNode> nodes, std::string_view zone_name)
{
    std::vector<FleetZone::Difference> differences;
    for (std::size_t i = 0; i < setting_names.size(); ++i) {
        std::map<std::string_view, Names> by_value;
        for (const FleetNode& node : nodes) {
            for (const NodeReport::Zone& zone : node.report.zones) {
                const std::size_t from = i * digits_of_setting;
                if (node.live && zone.name == zone_name
                    && zone.each_setting.size() >= from + digits_of_setting) {
                    const std::string_view all = zone.each_setting;
                    by_value[all.substr(from, digits_of_setting)].push_back(node.report.name);
                }
            }
        }
        if (by_value.size() > 1) {
            differences.push_back({ setting_names[i], minority(by_value) });
        }
    }
    return differences;
}

}  // namespace

FleetHistory sum_history(std::span<const FleetNode> nodes, std::uint64_t now_s)
{
    constexpr std::uint64_t minute = 60;
    const std::uint64_t last = now_s / minute;
    const std::uint64_t first = last + 1 - std::min<std::uint64_t>(most_minutes, last + 1);
    std::array<std::uint64_t, most_minutes> passed{};
    std::array<std::uint64_t, most_minutes> refused{};
    std::uint64_t begun = last + 1;
    for (const FleetNode& node : nodes) {
        const NodeReport& report = node.report;
        const std::size_t known =
            std::min(report.history_passed.size(), report.history_refused.size());
        for (std::size_t i = 0; i < known; ++i) {
            const std::uint64_t at = report.history_start / minute + i;
            if (at >= first && at <= last) {
                begun = std::min(begun, at);
                passed[at - first] += report.history_passed[i];
                refused[at - first] += report.history_refused[i];
            }
        }
    }
    const auto skipped = static_cast<std::ptrdiff_t>(begun - first);
    const auto end = static_cast<std::ptrdiff_t>(last + 1 - first);
    return { begun * minute,
             { passed.begin() + skipped, passed.begin() + end },
             { refused.begin() + skipped, refused.begin() + end } };
}

std::vector<FleetZone> sum_zones(std::span<const FleetNode> nodes)
{
    struct Sum {
        FleetZone zone;
        std::map<std::string_view, Names> by_settings;
    };
    std::map<std::string_view, Sum> sums;
    for (const FleetNode& node : nodes) {
        if (!node.live) {
            continue;
        }
        for (const NodeReport::Zone& zone : node.report.zones) {
            Sum& sum = sums[zone.name];
            ++sum.zone.nodes;
            sum.zone.passed += zone.passed;
            sum.zone.refused += zone.refused;
            sum.zone.ahead += zone.ahead;
            sum.zone.highest_use = std::max(sum.zone.highest_use, zone.highest_use);
            sum.by_settings[zone.settings].push_back(node.report.name);
            auto& limits = sum.zone.limits;
            constexpr std::size_t most_limits = 8;
            if (limits.size() < most_limits
                && std::find(limits.begin(), limits.end(), zone.limit) == limits.end()) {
                limits.push_back(zone.limit);
            }
        }
    }
    std::vector<FleetZone> zones;
    for (auto& [name, sum] : sums) {
        sum.zone.settings_differ = minority(sum.by_settings);
        if (!sum.zone.settings_differ.empty()) {
            sum.zone.differences = differences_of(nodes, name);
        }
        sum.zone.name = name;
        zones.push_back(std::move(sum.zone));
    }
    return zones;
}

std::vector<NodeReport::RefusedKey> sum_busiest(std::span<const FleetNode> nodes)
{
    struct Sum {
        std::size_t hash;
        std::string_view zone;
        std::string_view id;
        std::uint64_t refused;
        std::uint64_t per_1000_s;
        std::uint64_t since;
    };
    std::vector<Sum> sums;
    for (const FleetNode& node : nodes) {
        if (node.live) {
            for (const NodeReport::RefusedKey& key : node.report.busiest) {
                const std::hash<std::string_view> hash;
                sums.push_back(
                    { hash(key.id), key.zone, key.id, key.refused, key.per_1000_s, key.since });
            }
        }
    }
    // Mostly the hashes alone decide. Unlike a hash table, this is as fast if all of them are
    // equal.
    std::sort(sums.begin(), sums.end(), [](const Sum& left, const Sum& right) {
        return std::tie(left.hash, left.id, left.zone) < std::tie(right.hash, right.id, right.zone);
    });
    std::size_t count = 0;
    for (const Sum& sum : sums) {
        if (count > 0 && sums[count - 1].id == sum.id && sums[count - 1].zone == sum.zone) {
            Sum& same = sums[count - 1];
            same.refused += sum.refused;
            same.per_1000_s += sum.per_1000_s;
            same.since = same.since == 0 ? sum.since : std::min(same.since, sum.since);
        } else {
            sums[count++] = sum;
        }
    }
    sums.resize(count);
    const auto by_refused = [](const Sum& left, const Sum& right) {
        return std::tie(right.per_1000_s, right.refused, left.zone, left.id)
            < std::tie(left.per_1000_s, left.refused, right.zone, right.id);
    };
    const auto shown = static_cast<std::ptrdiff_t>(std::min(count, most_busiest));
    std::partial_sort(sums.begin(), sums.begin() + shown, sums.end(), by_refused);
    sums.erase(sums.begin() + shown, sums.end());
    std::vector<NodeReport::RefusedKey> keys;
    keys.reserve(sums.size());
    for (const Sum& sum : sums) {
        keys.push_back(
            { std::string(sum.zone), std::string(sum.id), sum.refused, sum.per_1000_s, sum.since });
    }
    return keys;
}

}  // namespace ratelimit::fleet
