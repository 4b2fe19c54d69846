// What a node says of itself.

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
    report.uptime_us = 4711;
    report.zones = { { "api", "0123456789abcdef", "100r/m", 1000, 20 },
                     { "login", "f", "5r/s", 3, 0 } };
    report.servers = { { "main", "10.0.0.5:6379", "up", 2, 2 } };
    report.busiest = { { "api", "%C0%00%02%01", 17 } };
    return report;
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
    report.zones_omitted = 7;
    for (std::size_t i = 0; i < history_scales.size(); ++i) {
        NodeHistory& history = report.history[i];
        history.passed.assign(history_scales[i].steps, most_requests);
        history.refused = history.undecided = history.passed;
    }
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->zones.size(), most_zones);
    EXPECT_EQ(read->zones_omitted, 7U);
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
    EXPECT_EQ(read->name.size(), most_name);
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

TEST(NodeReport, has_a_short_name_and_times_of_a_calendar)
{
    NodeReport report;
    report.name = std::string(most_name + 1, 'n');
    report.busiest = { { "z", "a", 1, 1, 8'640'000'000'001 }, { "z", "b", 1, 1, 1'700'000'000 } };
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->name.size(), most_name);
    EXPECT_EQ(read->busiest[0].since, 0U);
    EXPECT_EQ(read->busiest[1].since, 1'700'000'000U);
}

TEST(NodeReport, has_a_history_of_bounded_length)
{
    NodeReport report;
    report.history[0].start = 60;
    report.history[0].passed.assign(history_scales[0].steps, 7);
    report.history[0].refused = { 1, 2 };
    report.history[0].undecided = { 0, 3 };
    report.history[2] = { 1800, { 4 }, { 5 }, {} };
    const auto read = parse_report(write_report(report));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->history[0].start, 60U);
    EXPECT_EQ(read->history[0].passed, report.history[0].passed);
    EXPECT_EQ(read->history[0].refused, report.history[0].refused);
    EXPECT_EQ(read->history[0].undecided, report.history[0].undecided);
    EXPECT_TRUE(read->history[1].passed.empty());
    EXPECT_EQ(read->history[2].start, 1800U);
    EXPECT_EQ(read->history[2].passed, report.history[2].passed);

    const auto foreign = parse_report(
        R"({"history_passed":[1,-2,"3",[4],{"name":5},6],"history_refused":7,"busiest":[8]})");
    ASSERT_TRUE(foreign);
    EXPECT_EQ(foreign->history[0].passed, (std::vector<std::uint64_t>{ 1, 6 }));
    EXPECT_TRUE(foreign->history[0].refused.empty());
    EXPECT_TRUE(foreign->busiest.empty());
    std::string many = R"({"history_passed":[0)";
    for (std::size_t i = 0; i < 2 * history_scales[0].steps; ++i) {
        many += ",1";
    }
    EXPECT_EQ(parse_report(many + "]}")->history[0].passed.size(), history_scales[0].steps);
}

}  // namespace
}  // namespace ratelimit::fleet
