// What a node says of itself, and what others make of it.

#include "fleet/node_report.h"

#include <gtest/gtest.h>

namespace ratelimit::fleet {
namespace {

using Names = std::vector<std::string>;

NodeReport report_of(std::string name)
{
    NodeReport report;
    report.name = std::move(name);
    report.version = "0.4";
    report.nginx = "1.26.3";
    report.uptime = 4711;
    report.zones = { { "api", "0123456789abcdef", "100r/m", 1000, 20 },
                     { "login", "f", "5r/s", 3, 0 } };
    report.servers = { { "main", "10.0.0.5:6379", "up", 2, 2 } };
    report.busiest = { { "api", "%C0%00%02%01", 17 } };
    return report;
}

FleetNode node_of(std::string name, std::vector<NodeReport::Zone> zones, bool live = true)
{
    FleetNode node;
    node.live = live;
    node.report.name = std::move(name);
    node.report.zones = std::move(zones);
    return node;
}

TEST(NodeReportTest, is_read_as_it_was_written)
{
    const auto read = parse_report(write_report(report_of("edge-1")));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name, "edge-1");
    EXPECT_EQ(read->version, "0.4");
    EXPECT_EQ(read->nginx, "1.26.3");
    EXPECT_EQ(read->uptime, 4711U);
    EXPECT_EQ(read->zones_omitted, 0U);
    ASSERT_EQ(read->zones.size(), 2U);
    EXPECT_EQ(read->zones[0].name, "api");
    EXPECT_EQ(read->zones[0].settings, "0123456789abcdef");
    EXPECT_EQ(read->zones[0].limit, "100r/m");
    EXPECT_EQ(read->zones[0].passed, 1000U);
    EXPECT_EQ(read->zones[0].refused, 20U);
    ASSERT_EQ(read->servers.size(), 1U);
    EXPECT_EQ(read->servers[0].server, "10.0.0.5:6379");
    EXPECT_EQ(read->servers[0].workers_up, 2U);
    ASSERT_EQ(read->busiest.size(), 1U);
    EXPECT_EQ(read->busiest[0].id, "%C0%00%02%01");
    EXPECT_EQ(read->busiest[0].refused, 17U);
}

TEST(NodeReportTest, is_bounded)
{
    NodeReport report = report_of(std::string(5000, 'n'));
    const std::string text(5000, 'x');
    report.zones.assign(1000, { text, "0123456789abcdef", text, UINT64_MAX, UINT64_MAX });
    report.servers.assign(1000, { text, text, "breaker_open", 64, 64 });
    report.busiest.assign(1000, { text, text, UINT64_MAX });
    const std::string written = write_report(report);
    const auto bound = most_text * (1 + 2 * most_zones + 2 * most_servers + 2 * most_busiest)
        + 120 * (most_zones + most_servers + most_busiest);
    EXPECT_LE(written.size(), bound);
    report = report_of("edge-1");
    report.zones.assign(
        1000, { std::string(40, 'z'), "0123456789abcdef", "1000r/15m", UINT64_MAX, 1 });
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->zones.size(), most_zones);
    EXPECT_EQ(read->zones_omitted, 1000 - most_zones);
}

TEST(NodeReportTest, of_another_version_is_read_as_far_as_it_is_known)
{
    const auto read = parse_report(
        R"({"name":"next","future":[{"a":1}],"uptime":"long","zones":[7,{"name":"api","passed":3,"more":{}}],"redis":{}})");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name, "next");
    EXPECT_EQ(read->version, "");
    EXPECT_EQ(read->uptime, 0U);
    ASSERT_EQ(read->zones.size(), 1U);
    EXPECT_EQ(read->zones[0].passed, 3U);
    EXPECT_EQ(read->zones[0].settings, "");
    EXPECT_TRUE(read->servers.empty());
}

TEST(NodeReportTest, what_is_no_report_is_refused)
{
    for (const std::string text :
         { "", "{", "[]", "7", "null", "\"name\"", "{\"name\":\"\xFF\"}", "{\"name\":\"a\"} {}" }) {
        EXPECT_FALSE(parse_report(text)) << text;
    }
    EXPECT_FALSE(parse_report(std::string(100'000, '[')));
    EXPECT_FALSE(parse_report("{\"name\":\"" + std::string(most_report, 'n') + "\"}"))
        << "too long";
}

TEST(NodeReportTest, hostile_numbers_and_texts_are_bounded)
{
    const auto read = parse_report(
        R"({"name":")" + std::string(10'000, 'n') + R"(","uptime":-5,"zones":[)"
        + R"({"name":"a","passed":18446744073709551615,"refused":1e300},)"
        + R"({"name":"b","passed":1.5,"refused":99999999999999999999999}]})");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name.size(), most_text);
    EXPECT_EQ(read->uptime, 0U);
    EXPECT_EQ(read->zones[0].passed, 1ULL << 53U);
    EXPECT_EQ(read->zones[0].refused, 0U);
    EXPECT_EQ(read->zones[1].passed, 0U);
    EXPECT_EQ(read->zones[1].refused, 0U);
}

TEST(NodeReportTest, any_bytes_of_a_name_become_text)
{
    NodeReport report;
    report.name = "a\xFF\"\n";
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name, "a\xEF\xBF\xBD\"\n");
}

TEST(FleetZones, are_sums_of_the_live_nodes)
{
    const std::vector<FleetNode> nodes = {
        node_of("a", { { "api", "s", "", 10, 1 }, { "login", "t", "", 5, 5 } }),
        node_of("b", { { "api", "s", "", 20, 2 } }),
        node_of("c", { { "api", "other", "", 1000, 1000 } }, false),
    };
    const auto zones = sum_zones(nodes);
    ASSERT_EQ(zones.size(), 2U);
    EXPECT_EQ(zones[0].name, "api");
    EXPECT_EQ(zones[0].nodes, 2U);
    EXPECT_EQ(zones[0].passed, 30U);
    EXPECT_EQ(zones[0].refused, 3U);
    EXPECT_EQ(zones[0].settings_differ, Names{});
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
        return sum_zones(nodes).front().settings_differ;
    };
    EXPECT_EQ(differ({ "s" }), Names{});
    EXPECT_EQ(differ({ "s", "s", "s" }), Names{});
    EXPECT_EQ(differ({ "s", "t", "s" }), Names{ "b" });
    EXPECT_EQ(differ({ "t", "s", "s", "u" }), (Names{ "a", "d" }));
    EXPECT_EQ(differ({ "s", "t" }), (Names{ "a", "b" })) << "most nodes agree on none";
    EXPECT_EQ(differ({ "s", "t", "u", "s", "t" }), (Names{ "a", "b", "c", "d", "e" }));
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
