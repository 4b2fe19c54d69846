#include "fleet/fleet_sums.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

namespace ratelimit::fleet {

namespace {

constexpr std::size_t most_limits = 8;  // of one zone

/// The value of most nodes; `end`: there is none. `ByValue`: the names of the nodes with each
/// value.
template <class ByValue>
auto majority(const ByValue& by_value)
{
    auto most = by_value.end();
    std::size_t with_most = 0;
    for (auto each = by_value.begin(); each != by_value.end(); ++each) {
        const std::size_t size = each->second.size();
        const std::size_t best = with_most == 0 ? 0 : most->second.size();
        if (size > best) {
            most = each;
            with_most = 1;
        } else if (size == best) {
            ++with_most;
        }
    }
    return with_most == 1 ? most : by_value.end();
}

/// The names of the nodes with another value than most; of all nodes if most have none in common.
template <class ByValue>
auto minority(const ByValue& by_value)
{
    const auto most = majority(by_value);
    typename ByValue::mapped_type found;
    for (auto each = by_value.begin(); each != by_value.end(); ++each) {
        if (each != most) {
            found.insert(found.end(), each->second.begin(), each->second.end());
        }
    }
    return found;
}

/// Of one scale.
NodeHistory sum_scale(std::span<const FleetNode> nodes, std::uint64_t now_s, std::size_t scale)
{
    const std::uint64_t step = history_scales[scale].step_s;
    const std::uint64_t most = history_scales[scale].steps;
    const std::uint64_t last = now_s / step;
    const std::uint64_t first = last + 1 - std::min(most, last + 1);
    NodeHistory sum;
    for (auto* series : { &sum.passed, &sum.refused, &sum.undecided }) {
        series->resize(last + 1 - first);
    }
    std::uint64_t begun = last + 1;
    for (const FleetNode& node : nodes) {
        const NodeHistory& history = node.report.history[scale];
        const std::size_t known = std::min(history.passed.size(), history.refused.size());
        for (std::size_t i = 0; i < known; ++i) {
            const std::uint64_t at = history.start / step + i;
            if (at >= first && at <= last) {
                begun = std::min(begun, at);
                sum.passed[at - first] += history.passed[i];
                sum.refused[at - first] += history.refused[i];
                sum.undecided[at - first] +=
                    i < history.undecided.size() ? history.undecided[i] : 0;
            }
        }
    }
    for (auto* series : { &sum.passed, &sum.refused, &sum.undecided }) {
        series->erase(
            series->begin(), series->begin() + static_cast<std::ptrdiff_t>(begun - first));
    }
    sum.start = begun * step;
    return sum;
}

}  // namespace

FleetHistories sum_history(std::span<const FleetNode> nodes, std::uint64_t now_s)
{
    FleetHistories all;
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = sum_scale(nodes, now_s, i);
    }
    return all;
}

bool ZoneSums::read(std::size_t zones)
{
    for (std::size_t done = 0; next_ < nodes_.size(); ++next_) {
        if (done > zones) {
            return true;
        }
        const FleetNode& node = nodes_[next_];
        if (!node.live) {
            continue;
        }
        for (const NodeReport::Zone& zone : node.report.zones) {
            auto& all = zones_[zone.name];
            if (all.empty() || all.back().node != &node.report) {  // no node has two of one name
                all.push_back({ &node.report, &zone });
            }
        }
        done += node.report.zones.size() + 1;
    }
    return false;
}

std::optional<FleetZone> ZoneSums::next()
{
    if (zones_.empty()) {
        return std::nullopt;
    }
    const auto first = zones_.begin();
    FleetZone sum;
    sum.name = first->first;
    sum.nodes = first->second.size();
    ByValue by_settings;
    for (const auto& [node, zone] : first->second) {
        sum.passed += zone->passed;
        sum.refused += zone->refused;
        sum.would_refuse += zone->would_refuse;
        sum.ahead += zone->ahead;
        sum.highest_use = std::max(sum.highest_use, zone->highest_use);
        by_settings[zone->settings].push_back(node->name);
        auto& limits = sum.limits;
        if (limits.size() < most_limits
            && std::find(limits.begin(), limits.end(), zone->limit) == limits.end()) {
            limits.push_back(zone->limit);
        }
    }
    if (const auto most = majority(by_settings); most != by_settings.end()) {
        sum.settings = most->first;
    }
    sum.differ = named(minority(by_settings));
    if (sum.differ.count > 0) {
        sum.differences = differences_of(first->second);
    }
    zones_.erase(first);
    return sum;
}

/// Counts nodes, and names the first of them if there is room.
NamedNodes ZoneSums::named(Names names)
{
    NamedNodes nodes{ names.size(), {} };
    const std::size_t count = std::min({ names.size(), most_named, room_ });
    std::partial_sort(
        names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), names.end());
    nodes.names.assign(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count));
    room_ -= count;
    return nodes;
}

/// The settings of a zone that differ. Nodes of versions that do not report them are left out.
std::vector<FleetZone::Difference> ZoneSums::differences_of(std::span<const Of> all)
{
    std::vector<FleetZone::Difference> differences;
    for (std::size_t i = 0; i < setting_names.size(); ++i) {
        const std::size_t from = i * digits_of_setting;
        ByValue by_value;
        for (const auto& [node, zone] : all) {
            const std::string_view digits = zone->each_setting;
            if (digits.size() >= from + digits_of_setting) {
                by_value[digits.substr(from, digits_of_setting)].push_back(node->name);
            }
        }
        if (by_value.size() > 1) {
            differences.push_back({ setting_names[i], named(minority(by_value)) });
        }
    }
    return differences;
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
