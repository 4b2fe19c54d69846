// What happened to a fleet: what a node remembers of itself, and the list of all nodes.

#include "fleet/changed_settings.h"
#include "fleet/happenings.h"
#include "store/override_table.h"

#include <gtest/gtest.h>

namespace ratelimit::fleet {
namespace {

using What = Happening::What;

constexpr std::uint64_t now_ms = 1'784'000'000'000;
constexpr std::uint64_t minute = 60'000;
constexpr std::uint64_t kept_ms = Happenings::kept_us / 1000;

FleetNode node_of(std::string name, std::uint64_t uptime_ms = 0)
{
    FleetNode node;
    node.id = "id of " + name;
    node.heard_us = now_ms * 1000;
    node.live = true;
    node.report.name = std::move(name);
    // Unless it matters, a start that is too old to be listed.
    node.report.uptime_us = (uptime_ms == 0 ? 2 * kept_ms : uptime_ms) * 1000;
    return node;
}

/// With times in milliseconds.
std::vector<Happening> latest(Happenings all)
{
    while (all.merge(1, now_ms * 1000)) {
    }
    auto found = std::move(all).latest();
    for (Happening& one : found) {
        one.at /= 1000;
        one.until /= 1000;
    }
    return found;
}

std::vector<Happening> listed(const std::vector<FleetNode>& nodes)
{
    Happenings all;
    for (const FleetNode& node : nodes) {
        all.add(node);
    }
    return latest(std::move(all));
}

TEST(Happenings, an_outage_that_300_nodes_see_is_one)
{
    std::vector<FleetNode> nodes;
    for (std::uint64_t i = 0; i < 300; ++i) {
        nodes.push_back(node_of("edge-" + std::to_string(i)));
        const std::uint64_t from = now_ms - 90 * minute + i * 10;
        nodes.back().report.outages = { { from, from + 60 * minute, 1 + i % 3 } };
    }
    const auto found = listed(nodes);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].what, What::redis_away);
    EXPECT_EQ(found[0].nodes.count, 300U);
    EXPECT_EQ(found[0].nodes.names.size(), 5U);
    EXPECT_EQ(found[0].at, now_ms - 90 * minute);
    EXPECT_EQ(found[0].until, now_ms - 30 * minute + 2990);
    EXPECT_EQ(found[0].times, 3U);
}

TEST(Happenings, outages_at_other_times_are_others_and_one_that_lasts_has_no_end)
{
    auto one = node_of("one");
    one.report.outages = { { now_ms - 50 * minute, now_ms - 40 * minute, 1 },
                           { now_ms - 20 * minute, 0, 1 } };
    auto two = node_of("two");
    two.report.outages = { { now_ms - 30 * minute, now_ms - 25 * minute, 1 },
                           { now_ms - 10 * minute, now_ms - 9 * minute, 1 } };
    const auto found = listed({ one, two });
    two.report.loads = { { now_ms - 5 * minute, "" } };
    EXPECT_EQ(listed({ one, two })[0].until, 0U) << "before what happened since";
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].at, now_ms - 20 * minute);
    EXPECT_EQ(found[0].until, 0U);
    EXPECT_EQ(found[0].nodes.count, 2U);
    EXPECT_EQ(found[1].at, now_ms - 30 * minute);
    EXPECT_EQ(found[2].until, now_ms - 40 * minute);
}

TEST(Happenings, an_outage_of_a_node_that_is_gone_ended_when_it_was_heard_of_last)
{
    auto gone = node_of("gone");
    gone.live = false;
    gone.heard_us = (now_ms - 30 * minute) * 1000;
    gone.report.outages = { { now_ms - 31 * minute, 0, 1 } };
    auto live = node_of("live");
    live.report.outages = { { now_ms - 31 * minute, now_ms - 30 * minute, 1 },
                            { now_ms - 10 * minute, now_ms - 9 * minute, 1 } };
    const auto found = listed({ gone, live });
    ASSERT_EQ(found.size(), 3U) << "two outages, and that it is away";
    EXPECT_EQ(found[0].until, now_ms - 9 * minute);
    EXPECT_EQ(found[1].until, now_ms - 30 * minute);
    EXPECT_EQ(found[2].until, now_ms - 30 * minute);
}

TEST(Happenings, a_node_that_starts_again_and_again_is_one_node)
{
    auto first = node_of("edge", 9 * minute);
    auto second = node_of("edge", 5 * minute);
    second.id = "another id";
    const auto found = listed({ first, second, node_of("other", 7 * minute) });
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].nodes.count, 2U);
    EXPECT_EQ(found[0].nodes.names, (std::vector<std::string>{ "edge", "other" }));
}

TEST(Happenings, reloads_that_changed_the_same_within_ten_minutes_of_each_other_are_one)
{
    auto one = node_of("one");
    one.report.loads = { { now_ms - 40 * minute, "" }, { now_ms - 20 * minute, "per_ip (rate)" } };
    auto two = node_of("two");
    two.report.loads = { { now_ms - 31 * minute, "" }, { now_ms - 19 * minute, "per_ip (burst)" } };
    const auto found = listed({ one, two });
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].text, "per_ip (burst)");
    EXPECT_EQ(found[1].text, "per_ip (rate)");
    EXPECT_EQ(found[2].nodes.count, 2U);
    EXPECT_EQ(found[2].nodes.names, (std::vector<std::string>{ "one", "two" }));
    EXPECT_EQ(found[2].until, now_ms - 31 * minute);
}

TEST(Happenings, a_node_that_loads_twice_is_in_two_of_them)
{
    auto one = node_of("one");
    one.report.loads = { { now_ms - 40 * minute, "" }, { now_ms - 32 * minute, "" } };
    auto two = node_of("two");
    two.report.loads = { { now_ms - 31 * minute, "" } };
    const auto found = listed({ one, two });
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].nodes.count, 2U);
    EXPECT_EQ(found[1].nodes.count, 1U);
    auto three = node_of("three");
    three.report.outages = { { now_ms - 40 * minute, now_ms - 30 * minute, 1 } };
    one.report.loads.clear();
    one.report.outages = { { now_ms - 39 * minute, now_ms - 38 * minute, 1 },
                           { now_ms - 36 * minute, now_ms - 35 * minute, 1 } };
    const auto outages = listed({ one, three });
    ASSERT_EQ(outages.size(), 1U);
    EXPECT_EQ(outages[0].nodes.count, 2U);
}

TEST(Happenings, nodes_that_started_ended_or_went_away)
{
    auto ended = node_of("ended", 5 * minute);
    ended.live = false;
    ended.report.ended = 1;
    auto away = node_of("away");
    away.live = false;
    away.heard_us = (now_ms - 3 * minute) * 1000;
    away.report.uptime_us = kept_ms * 2000;
    const auto found = listed({ ended, away });
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0].what, What::ended);
    EXPECT_EQ(found[0].at, now_ms);
    EXPECT_EQ(found[1].what, What::away);
    EXPECT_EQ(found[1].at, now_ms - 3 * minute);
    EXPECT_EQ(found[2].what, What::started);
    EXPECT_EQ(found[2].at, now_ms - 5 * minute);
}

TEST(Happenings, changes_of_one_millisecond_keep_their_order)
{
    Happenings all;
    for (const std::uint64_t i : { 2, 0, 3, 1 }) {
        all.add_change((i % 2 == 0 ? "s2:za{}" : "r2:za{}"), now_ms * 1000 + i);
    }
    std::vector<What> order;
    for (const Happening& one : latest(std::move(all))) {
        order.push_back(one.what);
    }
    EXPECT_EQ(order, (std::vector{ What::taken_back, What::set, What::taken_back, What::set }));
}

TEST(Happenings, the_list_is_of_two_days_and_300_entries)
{
    Happenings all;
    const std::string id = "kzone" + std::string(1, '\0') + "key";
    const std::string member = "r" + std::to_string(id.size()) + ":" + id + "{\"by\":\"me\"}";
    for (std::uint64_t i = 0; i < 400; ++i) {
        all.add_change(member, (now_ms - kept_ms + minute * (i + 1) - 10 * minute) * 1000);
    }
    all.add_change(member, (now_ms + 2 * kept_ms) * 1000);
    const auto found = latest(std::move(all));
    ASSERT_EQ(found.size(), Happenings::most);
    EXPECT_EQ(found[0].at, now_ms - kept_ms + 390 * minute);
    EXPECT_EQ(found[0].what, What::taken_back);
    EXPECT_EQ(found[0].zone, "zone");
    EXPECT_EQ(found[0].key, "key");
    EXPECT_EQ(found[0].text, "{\"by\":\"me\"}");
}

TEST(Happenings, text_that_no_node_wrote_is_passed_over)
{
    using namespace std::string_literals;
    Happenings all;
    for (const std::string& member : { ""s, "s"s, "s5"s, "s-1:"s, "s6:zabc"s, "x2:za"s, "s2:fa"s,
                                       "f2:za"s, "s99999999999999999999:za"s }) {
        all.add_change(member, now_ms * 1000);
    }
    for (const std::string& member : { ""s, "e"s, "ename"s, "xname\0id"s, "\0"s }) {
        all.add_gone(member, now_ms * 1000);
    }
    all.add_gone("a\0id"s, now_ms * 1000);
    EXPECT_EQ(latest(std::move(all)).size(), 1U);
}

std::string digits(char first)
{
    return std::string(1, first) + std::string(38, '0');
}

NodePast::ZoneSettings settings_of(std::string_view zone, std::string_view each)
{
    NodePast::ZoneSettings settings;
    settings.zone = OverrideTable::zone_hash(zone);
    each.copy(settings.digits.data(), settings.digits.size());
    return settings;
}

TEST(ChangedSettings, names_what_a_reload_changed)
{
    const std::vector before = { settings_of("a", digits('0')), settings_of("b", digits('0')) };
    using After = std::vector<std::pair<std::string, std::string>>;
    EXPECT_EQ(changed_settings(before, After{ { "b", digits('0') }, { "a", digits('0') } }), "");
    std::string rate = digits('1');
    rate[8] = '1';
    EXPECT_EQ(
        changed_settings(before, After{ { "a", rate }, { "b", digits('0') } }), "a (key, rate)");
    EXPECT_EQ(
        changed_settings(before, After{ { "b", digits('0') }, { "c", rate } }),
        "c (new), 1 zone removed");
}

TEST(ChangedSettings, is_no_longer_than_a_node_has_room_for)
{
    std::vector<NodePast::ZoneSettings> before;
    std::vector<std::pair<std::string, std::string>> after;
    for (int i = 0; i < 256; ++i) {
        before.push_back(settings_of("gone" + std::to_string(i), digits('0')));
        after.emplace_back(std::string(i == 0 ? 300 : 30, 'z') + std::to_string(i), digits('0'));
    }
    const std::string text = changed_settings(before, after);
    EXPECT_LE(text.size(), NodePast::Load{}.bytes.size());
    EXPECT_NE(text.find("more zones, 256 zones removed"), std::string::npos) << text;
}

TEST(NodePast, remembers_the_latest_outages)
{
    constexpr std::int64_t second = 1'000'000;
    NodePast past;
    const auto all = [&past] {
        std::vector<NodePast::Outage> found;
        past.outages().each([&](const NodePast::Outage& one) { found.push_back(one); });
        return found;
    };
    past.follow(false, 5 * second);
    EXPECT_TRUE(all().empty());
    for (int i = 0; i < 3; ++i) {
        past.follow(true, 10 * second);
    }
    ASSERT_EQ(all().size(), 1U);
    EXPECT_EQ(all()[0].to_us, 0);
    past.follow(false, 20 * second);
    past.follow(false, 21 * second);
    EXPECT_EQ(all()[0].from_us, 10 * second);
    EXPECT_EQ(all()[0].to_us, 20 * second);

    past.follow(true, 79 * second);  // within a minute
    EXPECT_EQ(all().size(), 1U);
    past.follow(false, 80 * second);
    EXPECT_EQ(all()[0].times, 2U);
    EXPECT_EQ(all()[0].to_us, 80 * second);

    for (int i = 0; i < 9; ++i) {
        past.follow(true, (1000 + 100 * i) * second);
        past.follow(false, (1010 + 100 * i) * second);
    }
    ASSERT_EQ(all().size(), NodePast::most);
    EXPECT_EQ(all().front().from_us, 1100 * second);
    EXPECT_EQ(all().back().from_us, 1800 * second);
}

TEST(NodePast, whatever_a_worker_wrote_into_it_the_master_stays_within_it)
{
    struct {
        NodePast past;
        std::array<unsigned char, 64> after{};
    } memory;
    std::fill_n(reinterpret_cast<unsigned char*>(&memory.past), sizeof(NodePast), 0xff);
    memory.past.add_load(1, std::string(500, 'x'));
    EXPECT_EQ(memory.past.settings().size(), NodePast::most_zones);
    memory.past.set_settings(std::vector<NodePast::ZoneSettings>(300));
    EXPECT_EQ(memory.past.settings().size(), NodePast::most_zones);
    std::size_t loads = 0;
    memory.past.loads().each([&](const NodePast::Load& load) {
        EXPECT_LE(load.text().size(), load.bytes.size());
        ++loads;
    });
    EXPECT_LE(loads, NodePast::most);
    EXPECT_EQ(std::count(memory.after.begin(), memory.after.end(), 0), 64);
}

}  // namespace
}  // namespace ratelimit::fleet
