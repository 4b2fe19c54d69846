// The sums over the nodes of a fleet.

#include "fleet/fleet_sums.h"

#include <gtest/gtest.h>

namespace ratelimit::fleet {
namespace {

using Names = std::vector<std::string>;

FleetNode node_of(std::string name, std::vector<NodeReport::Zone> zones, bool live = true)
{
    FleetNode node;
    node.live = live;
    node.report.name = std::move(name);
    node.report.zones = std::move(zones);
    return node;
}

std::vector<FleetZone> sum_zones(const std::vector<FleetNode>& nodes)
{
    ZoneSums sums(nodes);
    while (sums.read(0)) {
    }
    std::vector<FleetZone> zones;
    while (auto zone = sums.next()) {
        zones.push_back(std::move(*zone));
    }
    return zones;
}

TEST(FleetZones, are_sums_of_the_live_nodes)
{
    const std::vector<FleetNode> nodes = {
        node_of("a", { { "api", "s", "", 10, 1 }, { "login", "t", "", 5, 5 } }),
        node_of("b", { { "api", "s", "", 20, 2, 0, 0, "", 7 } }),
        node_of("c", { { "api", "other", "", 1000, 1000 } }, false),
    };
    const auto zones = sum_zones(nodes);
    ASSERT_EQ(zones.size(), 2U);
    EXPECT_EQ(zones[0].name, "api");
    EXPECT_EQ(zones[0].nodes, 2U);
    EXPECT_EQ(zones[0].passed, 30U);
    EXPECT_EQ(zones[0].refused, 3U);
    EXPECT_EQ(zones[0].would_refuse, 7U) << "a node of an older version reports none";
    EXPECT_EQ(zones[0].differ.count, 0U);
    EXPECT_EQ(zones[0].settings, "s");
    EXPECT_EQ(zones[1].name, "login");
    EXPECT_EQ(zones[1].nodes, 1U);
    EXPECT_TRUE(sum_zones({}).empty());
}

TEST(FleetZones, name_the_nodes_whose_settings_differ)
{
    const auto differ = [](const std::vector<std::string>& settings) {
        std::vector<FleetNode> nodes;
        for (std::size_t i = 0; i < settings.size(); ++i) {
            nodes.push_back(node_of(
                std::string(1, static_cast<char>('a' + i)), { { "z", settings[i], "", 0, 0 } }));
        }
        const auto found = sum_zones(nodes).front().differ;
        EXPECT_EQ(found.count, found.names.size());
        return found.names;
    };
    EXPECT_EQ(differ({ "s" }), Names{});
    EXPECT_EQ(differ({ "s", "s", "s" }), Names{});
    EXPECT_EQ(differ({ "s", "t", "s" }), Names{ "b" });
    EXPECT_EQ(differ({ "t", "s", "s", "u" }), (Names{ "a", "d" }));
    EXPECT_EQ(differ({ "s", "t" }), (Names{ "a", "b" })) << "most nodes agree on none";
    EXPECT_EQ(differ({ "s", "t", "u", "s", "t" }), (Names{ "a", "b", "c", "d", "e" }));
}

TEST(FleetZones, name_the_settings_that_differ_and_where)
{
    const auto zone = [](std::string each_setting) {
        NodeReport::Zone made{ "z", each_setting, "", 0, 0 };
        made.each_setting = std::move(each_setting);
        return made;
    };
    const std::string same(setting_names.size() * digits_of_setting, '0');
    std::string burst = same;
    burst.replace(4 * digits_of_setting, digits_of_setting, "abc");
    std::string both = burst;
    both[0] = '1';
    const auto differences = [](const std::vector<FleetNode>& nodes) {
        std::map<std::string, Names> found;
        const auto zones = sum_zones(nodes);
        for (const auto& [setting, differ] : zones.front().differences) {
            found[std::string(setting)] = differ.names;
            EXPECT_EQ(differ.count, differ.names.size());
        }
        return found;
    };
    using Found = std::map<std::string, Names>;
    EXPECT_EQ(differences({ node_of("a", { zone(same) }), node_of("b", { zone(same) }) }), Found{});
    EXPECT_EQ(
        differences({ node_of("a", { zone(same) }), node_of("b", { zone(burst) }),
                      node_of("c", { zone(same) }), node_of("d", { zone(both) }) }),
        (Found{ { "key", { "d" } }, { "burst", { "a", "b", "c", "d" } } }));
    EXPECT_EQ(differences({ node_of("a", { zone(same) }), node_of("b", { zone("x") }) }), Found{})
        << "a node of an older version does not say which";
}

TEST(FleetZones, name_twenty_nodes_of_a_difference_and_count_all)
{
    std::vector<FleetNode> nodes;
    for (int i = 0; i < 100; ++i) {
        nodes.push_back(
            node_of(std::to_string(1000 - i), { { "z", i < 60 ? "s" : "t", "", 0, 0 } }));
    }
    const auto zone = sum_zones(nodes).front();
    EXPECT_EQ(zone.settings, "s");
    EXPECT_EQ(zone.differ.count, 40U);
    EXPECT_EQ(zone.differ.names.size(), most_named);
    EXPECT_EQ(zone.differ.names.front(), "901");
    EXPECT_EQ(zone.differ.names.back(), "920");
}

TEST(FleetZones, of_a_hostile_fleet_name_a_bounded_number_of_nodes)
{
    std::vector<FleetNode> nodes;
    for (int i = 0; i < 40; ++i) {
        std::vector<NodeReport::Zone> zones;
        for (std::size_t z = 0; z < most_zones; ++z) {
            NodeReport::Zone zone{ std::to_string(z), std::to_string(i), "", 0, 0 };
            zone.each_setting =
                std::string(setting_names.size() * digits_of_setting, static_cast<char>('0' + i));
            zones.push_back(std::move(zone));
        }
        nodes.push_back(node_of("n", std::move(zones)));
    }
    std::size_t names = 0;
    std::uint64_t differ = 0;
    for (const FleetZone& zone : sum_zones(nodes)) {
        EXPECT_EQ(zone.settings, "");
        names += zone.differ.names.size();
        for (const auto& difference : zone.differences) {
            names += difference.nodes.names.size();
            differ += difference.nodes.count;
        }
    }
    EXPECT_EQ(names, ZoneSums::most_names);
    EXPECT_EQ(differ, 40U * most_zones * setting_names.size()) << "all are counted";
}

TEST(FleetZones, are_read_in_parts_and_a_zone_that_a_node_has_twice_once)
{
    const std::vector<FleetNode> nodes = {
        node_of("a", { { "z", "s", "", 1, 0 }, { "z", "t", "", 1, 0 } }),
        node_of("b", { { "z", "s", "", 1, 0 } }),
    };
    ZoneSums sums(nodes);
    EXPECT_TRUE(sums.read(1));
    EXPECT_FALSE(sums.read(1));
    const auto zone = sums.next();
    ASSERT_TRUE(zone);
    EXPECT_EQ(zone->nodes, 2U);
    EXPECT_EQ(zone->passed, 2U);
    EXPECT_FALSE(sums.next());
}

TEST(FleetHistory, is_summed_by_the_minute)
{
    constexpr std::uint64_t now = 1'700'000'100;  // 20 seconds after a minute began
    constexpr std::uint64_t minute = now - now % 60;
    constexpr std::size_t minutes = history_scales[0].steps;
    std::vector<FleetNode> nodes(3);
    const auto set = [&](std::size_t i, std::uint64_t start, std::vector<std::uint64_t> passed) {
        nodes[i].report.history[0].start = start;
        nodes[i].report.history[0].refused.assign(passed.size(), 1);
        nodes[i].report.history[0].passed = std::move(passed);
    };
    set(0, minute - 120, { 10, 20, 3 });
    set(1, minute - 60, { 5, 1 });
    const NodeHistory two = sum_history(nodes, now)[0];
    EXPECT_EQ(two.start, minute - 120);
    EXPECT_EQ(two.passed, (std::vector<std::uint64_t>{ 10, 25, 4 }));
    EXPECT_EQ(two.refused, (std::vector<std::uint64_t>{ 1, 2, 2 }));
    EXPECT_EQ(two.undecided, (std::vector<std::uint64_t>{ 0, 0, 0 })) << "nodes of older versions";
    nodes[1].report.history[0].undecided = { 4 };
    EXPECT_EQ(sum_history(nodes, now)[0].undecided, (std::vector<std::uint64_t>{ 0, 4, 0 }));

    set(2, minute - 60 * minutes, { 1000, 7 });
    const NodeHistory hour = sum_history(nodes, now)[0];
    EXPECT_EQ(hour.start, minute - 60 * (minutes - 1)) << "what is older is left out";
    EXPECT_EQ(hour.passed.size(), minutes);
    EXPECT_EQ(hour.passed.front(), 7U);

    set(2, UINT64_MAX - 60, { 1, 1, 1, 1 });
    EXPECT_EQ(sum_history(nodes, now)[0].passed, two.passed) << "a report with an impossible time";
    EXPECT_TRUE(sum_history({}, now)[0].passed.empty());
    EXPECT_TRUE(sum_history({}, 0)[0].passed.empty());
}

TEST(FleetHistory, of_hours_and_days_is_summed_by_its_own_steps)
{
    constexpr std::uint64_t now = 1'700'000'100;
    std::vector<FleetNode> nodes(2);
    for (std::size_t scale = 1; scale < history_scales.size(); ++scale) {
        const std::uint64_t step = history_scales[scale].step_s;
        const std::uint64_t last = now - now % step;
        nodes[0].report.history[scale] = { last - step, { 10, 2 }, { 1, 1 }, { 0, 2 } };
        nodes[1].report.history[scale] = { last, { 5 }, { 3 }, {} };
        const NodeHistory sum = sum_history(nodes, now)[scale];
        EXPECT_EQ(sum.start, last - step);
        EXPECT_EQ(sum.passed, (std::vector<std::uint64_t>{ 10, 7 }));
        EXPECT_EQ(sum.refused, (std::vector<std::uint64_t>{ 1, 4 }));
        EXPECT_EQ(sum.undecided, (std::vector<std::uint64_t>{ 0, 2 }));
    }
    EXPECT_TRUE(sum_history(nodes, now)[0].passed.empty()) << "the hour is another series";
}

TEST(FleetBusiest, is_the_sum_of_the_live_nodes)
{
    std::vector<FleetNode> nodes(3);
    nodes[0].live = nodes[1].live = true;
    nodes[0].report.busiest = { { "api", "a", 10 }, { "api", "b", 9 }, { "login", "a", 1 } };
    nodes[1].report.busiest = { { "api", "b", 9 } };
    nodes[2].report.busiest = { { "api", "c", 99 } };
    const auto keys = sum_busiest(nodes);
    ASSERT_EQ(keys.size(), 3U);
    EXPECT_EQ(keys[0].id, "b");
    EXPECT_EQ(keys[0].refused, 18U);
    EXPECT_EQ(keys[1].zone, "api");
    EXPECT_EQ(keys[2].zone, "login");

    nodes[1].report.busiest = { { "login", "b", 10 }, { "api", "z", 10 }, { "login", "a", 9 } };
    Names order;
    for (const NodeReport::RefusedKey& key : sum_busiest(nodes)) {
        order.push_back(key.zone + " " + key.id);
    }
    EXPECT_EQ(order, (Names{ "api a", "api z", "login a", "login b", "api b" })) << "equal sums";

    nodes[0].report.busiest = { { "api", "a", 100, 0, 50 }, { "api", "b", 2, 700, 90 } };
    nodes[1].report.busiest = { { "api", "b", 3, 800, 80 }, { "api", "c", 9, 1400, 10 } };
    const auto now = sum_busiest(nodes);
    ASSERT_EQ(now.size(), 3U);
    EXPECT_EQ(now[0].id, "b") << "who is refused most now comes first";
    EXPECT_EQ(now[0].per_1000_s, 1500U);
    EXPECT_EQ(now[0].since, 80U);
    EXPECT_EQ(now[1].id, "c");
    EXPECT_EQ(now[2].id, "a");

    nodes.assign(most_busiest + 1, {});
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        nodes[i].live = true;
        nodes[i].report.busiest = { { "z", std::to_string(i), 100 + i } };
    }
    EXPECT_EQ(sum_busiest(nodes).size(), most_busiest);
    EXPECT_EQ(sum_busiest(nodes).front().refused, 100 + most_busiest);
}

}  // namespace
}  // namespace ratelimit::fleet
