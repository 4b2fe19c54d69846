// What a node says of itself, and what others make of it.

#include "fleet/fleet_sums.h"

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
    report.uptime_us = 4711;
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
    EXPECT_EQ(read->uptime_us, 4711U);
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
    constexpr std::uint64_t most_requests = 100'000'000;  // of a minute
    NodeReport report = report_of(std::string(5000, 'n'));
    const std::string text(5000, 'x');
    report.zones.assign(1000, { text, "0123456789abcdef", text, UINT64_MAX, UINT64_MAX });
    report.servers.assign(1000, { text, text, "breaker_open", 64, 64 });
    report.busiest.assign(1000, { text, text, UINT64_MAX });
    const std::string written = write_report(report);
    const auto bound = most_text * (1 + 2 * most_zones + 2 * most_servers + 2 * most_busiest)
        + 160 * (most_zones + most_servers + most_busiest);
    EXPECT_LE(written.size(), bound);
    report = report_of("edge-1");
    report.zones.assign(
        1000,
        { std::string(40, 'z'), "0123456789abcdef", "1000r/15m", UINT64_MAX, 1, 0, 100,
          std::string(setting_names.size() * digits_of_setting, 'f') });
    report.history_passed.assign(most_minutes, most_requests);
    report.history_refused = report.history_passed;
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->zones.size(), most_zones);
    EXPECT_EQ(read->zones_omitted, 1000 - most_zones);
}

TEST(NodeReportTest, of_another_version_is_read_as_far_as_it_is_known)
{
    const auto read = parse_report(
        R"({"name":"next","future":[{"a":1}],"uptime_us":"long","zones":[7,{"name":"api","passed":3,"more":{}}],"redis":{}})");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name, "next");
    EXPECT_EQ(read->version, "");
    EXPECT_EQ(read->uptime_us, 0U);
    ASSERT_EQ(read->zones.size(), 1U);
    EXPECT_EQ(read->zones[0].passed, 3U);
    EXPECT_EQ(read->zones[0].settings, "");
    EXPECT_TRUE(read->servers.empty());
}

TEST(NodeReportTest, of_members_with_the_same_name_the_last_one_counts)
{
    const auto name = [](const std::string& text) { return parse_report(text).value().name; };
    EXPECT_EQ(name(R"({"name":"a","name":"b"})"), "b");
    for (const std::string last :
         { "7", "-7", "7.5", "null", "true", "[]", "{}", R"([{"x":"c"}])" }) {
        EXPECT_EQ(name(R"({"name":"a","name":)" + last + "}"), "") << last << " is no text";
    }
    const auto zones = [](const std::string& text) {
        const NodeReport report = parse_report(text).value();
        Names names;
        for (const NodeReport::Zone& zone : report.zones) {
            names.push_back(zone.name + zone.limit + std::to_string(zone.passed));
        }
        return names;
    };
    const std::string first = R"({"zones":[{"name":"a"},{"name":"b"}],"zones":)";
    EXPECT_EQ(zones(first + R"([{"name":"c"}]})"), Names{ "c0" });
    for (const std::string last :
         { "[]", "7", R"("z")", R"({"name":"c"})", R"({"a":{"name":"c"}})" }) {
        EXPECT_EQ(zones(first + last + "}"), Names{}) << last;
    }
    EXPECT_EQ(
        zones(R"({"zones":[{"name":"a","passed":3,"name":{},"passed":"4","limit":"l"}]})"),
        Names{ "l0" });
}

TEST(NodeReportTest, what_is_not_known_is_passed_over_at_any_depth)
{
    const auto read = parse_report(
        R"({"future":{"name":"x","zones":[{"name":"x"}],"busiest":[{"id":"x"}]},"name":"edge-1",)"
        R"("more":[{"name":"x"},[{"name":"x"}]],"zones":[[{"name":"x"}],"x",null,)"
        R"({"in":{"name":"x"},"name":"api","of":[{"name":"x","passed":9}],"passed":3},{}],)"
        R"("redis":[{"state":"up","state":{"state":"x"},"workers":2}],)"
        R"("busiest":{"zone":"x","a":[{"id":"x"}]}})");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name, "edge-1");
    ASSERT_EQ(read->zones.size(), 2U);
    EXPECT_EQ(read->zones[0].name, "api");
    EXPECT_EQ(read->zones[0].passed, 3U);
    EXPECT_EQ(read->zones[1].name, "");
    ASSERT_EQ(read->servers.size(), 1U);
    EXPECT_EQ(read->servers[0].state, "");
    EXPECT_EQ(read->servers[0].workers, 2U);
    EXPECT_TRUE(read->busiest.empty());
    const std::string deep = std::string(60'000, '[') + std::string(60'000, ']');
    EXPECT_EQ(parse_report(R"({"name":"a","x":)" + deep + "}").value().name, "a");
    EXPECT_TRUE(parse_report(R"({"zones":)" + deep + "}").value().zones.empty());
}

TEST(NodeReportTest, elements_that_are_no_objects_count_against_the_bound)
{
    std::string text = R"({"busiest":[)";
    for (std::size_t i = 1; i < most_busiest; ++i) {
        text += i % 2 == 0 ? "7," : "[7],";
    }
    const auto read =
        parse_report(text + R"({"id":"last"},{"id":"beyond","zone":"z"}],"name":"a"})");
    ASSERT_TRUE(read);
    ASSERT_EQ(read->busiest.size(), 1U);
    EXPECT_EQ(read->busiest[0].id, "last");
    EXPECT_EQ(read->busiest[0].zone, "");
    EXPECT_EQ(read->name, "a");
}

TEST(NodeReportTest, what_is_no_report_is_refused)
{
    for (const std::string text :
         { "", "{", "[]", "7", "null", "\"name\"", "{\"name\":\"\xFF\"}", "{\"name\":\"a\"} {}",
           "{\"name\":\"a\",\"x\":[1e400]}", "{\"name\":\"a\",\"x\":[}", "[{\"name\":\"a\"}]" }) {
        EXPECT_FALSE(parse_report(text)) << text;
    }
    EXPECT_FALSE(parse_report(std::string(100'000, '[')));
    EXPECT_FALSE(parse_report("{\"name\":\"" + std::string(most_report, 'n') + "\"}"))
        << "too long";
}

TEST(NodeReportTest, hostile_numbers_and_texts_are_bounded)
{
    const auto read = parse_report(
        R"({"name":")" + std::string(10'000, 'n') + R"(","uptime_us":-5,"zones":[)"
        + R"({"name":"a","passed":18446744073709551615,"refused":1e300},)"
        + R"({"name":"b","passed":1.5,"refused":99999999999999999999999}]})");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name.size(), most_text);
    EXPECT_EQ(read->uptime_us, 0U);
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
        for (const auto& [setting, names] : zones.front().differences) {
            found[std::string(setting)] = names;
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

TEST(FleetHistory, is_summed_by_the_minute)
{
    constexpr std::uint64_t now = 1'700'000'100;  // 20 seconds after a minute began
    constexpr std::uint64_t minute = now - now % 60;
    std::vector<FleetNode> nodes(3);
    const auto set = [&](std::size_t i, std::uint64_t start, std::vector<std::uint64_t> passed) {
        nodes[i].report.history_start = start;
        nodes[i].report.history_refused.assign(passed.size(), 1);
        nodes[i].report.history_passed = std::move(passed);
    };
    set(0, minute - 120, { 10, 20, 3 });
    set(1, minute - 60, { 5, 1 });
    const FleetHistory two = sum_history(nodes, now);
    EXPECT_EQ(two.start, minute - 120);
    EXPECT_EQ(two.passed, (std::vector<std::uint64_t>{ 10, 25, 4 }));
    EXPECT_EQ(two.refused, (std::vector<std::uint64_t>{ 1, 2, 2 }));

    set(2, minute - 60 * most_minutes, { 1000, 7 });
    const FleetHistory hour = sum_history(nodes, now);
    EXPECT_EQ(hour.start, minute - 60 * (most_minutes - 1)) << "what is older is left out";
    EXPECT_EQ(hour.passed.size(), most_minutes);
    EXPECT_EQ(hour.passed.front(), 7U);

    set(2, UINT64_MAX - 60, { 1, 1, 1, 1 });
    EXPECT_EQ(sum_history(nodes, now).passed, two.passed) << "a report with an impossible time";
    EXPECT_TRUE(sum_history({}, now).passed.empty());
    EXPECT_TRUE(sum_history({}, 0).passed.empty());
}

TEST(NodeReport, has_a_history_of_bounded_length)
{
    NodeReport report;
    report.history_start = 60;
    report.history_passed.assign(most_minutes, 7);
    report.history_refused = { 1, 2 };
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->history_start, 60U);
    EXPECT_EQ(read->history_passed, report.history_passed);
    EXPECT_EQ(read->history_refused, report.history_refused);

    const auto foreign = parse_report(
        R"({"history_passed":[1,-2,"3",[4],{"name":5},6],"history_refused":7,"busiest":[8]})");
    ASSERT_TRUE(foreign);
    EXPECT_EQ(foreign->history_passed, (std::vector<std::uint64_t>{ 1, 6 }));
    EXPECT_TRUE(foreign->history_refused.empty());
    EXPECT_TRUE(foreign->busiest.empty());
    std::string many = R"({"history_passed":[0)";
    for (std::size_t i = 0; i < 2 * most_minutes; ++i) {
        many += ",1";
    }
    EXPECT_EQ(parse_report(many + "]}")->history_passed.size(), most_minutes);
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
