// The list of a fleet's nodes, from Redis.

#include "fleet/nodes_call.h"
#include "resp_reply.h"

#include <gtest/gtest.h>

namespace ratelimit::fleet {
namespace {

class TestCall final : public NodesCall {
public:
    TestCall() : NodesCall({}, FleetKeys("rl:")) {}
    void ended(redis::Fate) noexcept override {}
    std::optional<NodeList> list;

private:
    void listed(NodeList got) noexcept override { list = std::move(got); }
};

std::optional<NodeList> listed(const std::string& resp)
{
    TestCall call;
    const auto reply = reply_of(resp);
    const bool good = call.on_reply(*reply);
    EXPECT_EQ(good, call.list.has_value());
    return call.list;
}

std::vector<FleetNode> read_nodes(const NodeList& list, std::uint64_t& unreadable)
{
    NodesReader reader(list);
    EXPECT_FALSE(reader.read(SIZE_MAX));
    unreadable = reader.unreadable();
    return reader.nodes();
}

NodeList two_nodes()
{
    return { 1'784'000'000'000'000,
             2,
             { { "aa", 1'783'999'999'000'000, R"({"name":"edge-1"})" },
               { "bb", 1'783'999'990'000'000, R"({"name":"edge-2"})" } } };
}

TEST(NodesCallTest, reads_the_reply_of_its_script)
{
    const auto list =
        listed("*11\r\n:1784000000000000\r\n:2\r\n:1783000000000000\r\n"
               "*2\r\n$3\r\ns1:\r\n$16\r\n1783999999000000\r\n*0\r\n"
               "$2\r\naa\r\n$16\r\n1783999999000000\r\n$17\r\n{\"name\":\"edge-1\"}\r\n"
               "$2\r\nbb\r\n$22\r\n1.7839999900000000e+15\r\n$0\r\n\r\n");
    ASSERT_TRUE(list);
    EXPECT_EQ(list->now_us, 1'784'000'000'000'000U);
    EXPECT_EQ(list->nodes, 2U);
    EXPECT_EQ(list->changes_since_us, 1'783'000'000'000'000U);
    ASSERT_EQ(list->changes.size(), 1U);
    EXPECT_EQ(list->changes[0].member, "s1:");
    EXPECT_EQ(list->changes[0].at_us, 1'783'999'999'000'000U);
    EXPECT_TRUE(list->forgotten.empty());
    ASSERT_EQ(list->reported.size(), 2U);
    EXPECT_EQ(list->reported[0].id, "aa");
    EXPECT_EQ(list->reported[0].heard_us, 1'783'999'999'000'000U);
    EXPECT_EQ(list->reported[1].heard_us, 1'783'999'990'000'000U);
}

TEST(NodesCallTest, refuses_replies_of_another_shape)
{
    for (const std::string resp :
         { ":1\r\n", "*0\r\n", "*1\r\n:1\r\n", "*2\r\n:1\r\n:0\r\n",
           "*6\r\n:1\r\n:0\r\n:0\r\n*0\r\n*0\r\n$1\r\na\r\n",
           "*5\r\n$1\r\n1\r\n:0\r\n:0\r\n*0\r\n*0\r\n", "*5\r\n:1\r\n:0\r\n:-1\r\n*0\r\n*0\r\n",
           "*5\r\n:1\r\n:0\r\n:0\r\n*0\r\n:0\r\n",
           "*5\r\n:1\r\n:0\r\n:0\r\n*1\r\n$1\r\na\r\n*0\r\n",
           "*5\r\n:1\r\n:0\r\n:0\r\n*0\r\n*2\r\n$1\r\na\r\n:1\r\n",
           "*8\r\n:1\r\n:1\r\n:0\r\n*0\r\n*0\r\n$1\r\na\r\n:5\r\n$0\r\n\r\n",
           "*8\r\n:1\r\n:1\r\n:0\r\n*0\r\n*0\r\n$1\r\na\r\n$-1\r\n$0\r\n\r\n" }) {
        EXPECT_FALSE(listed(resp)) << resp;
    }
}

TEST(NodesCallTest, nodes_that_were_heard_of_within_five_seconds_live)
{
    std::uint64_t unreadable = 0;
    NodeList list = two_nodes();
    list.reported.push_back({ "cc", list.now_us, "no JSON" });
    list.reported.push_back({ "dd", list.now_us + 1'000'000, R"({"name":"ahead"})" });
    list.reported.push_back({ "ee", list.now_us + 6'000'000, R"({"name":"far ahead"})" });
    const auto nodes = read_nodes(list, unreadable);
    ASSERT_EQ(nodes.size(), 4U);
    EXPECT_EQ(unreadable, 1U);
    EXPECT_TRUE(nodes[0].live);
    EXPECT_FALSE(nodes[1].live);
    EXPECT_TRUE(nodes[2].live);
    EXPECT_FALSE(nodes[3].live) << "since Redis's clock was set back";
    EXPECT_EQ(nodes[1].report.name, "edge-2");
    EXPECT_EQ(nodes[1].heard_us, 1'783'999'990'000'000U);
}

/// The ids of the nodes that are shown. A node: id, seconds since it was heard, uptime in seconds,
/// and its other members.
struct Heard {
    std::string id;
    std::uint64_t ago_s = 0;
    std::uint64_t uptime = 0;
    std::string more = {};
};

std::string shown(const std::vector<Heard>& nodes)
{
    NodeList list;
    list.now_us = 1'784'000'000'000'000;
    for (const Heard& node : nodes) {
        list.reported.push_back({ node.id, list.now_us - node.ago_s * 1'000'000,
                                  R"({"name":"edge","uptime_us":)"
                                      + std::to_string(node.uptime * 1'000'000) + node.more
                                      + "}" });
    }
    std::uint64_t unreadable = 0;
    std::string text;
    for (const FleetNode& read : read_nodes(list, unreadable)) {
        text += read.id;
    }
    return text;
}

TEST(NodesCallTest, a_node_that_was_restarted_or_upgraded_is_not_shown_as_away)
{
    const std::string old = R"(,"process":70)";
    const std::string upgraded = R"(,"process":80,"replaces":70)";
    EXPECT_EQ(shown({ { "b", 0, 60 }, { "a", 61, 900 } }), "b") << "restarted";
    EXPECT_EQ(shown({ { "b", 0, 60, upgraded }, { "a", 30, 900, old } }), "b");
    EXPECT_EQ(shown({ { "b", 1, 9, upgraded }, { "a", 4, 900, old } }), "ba") << "both live";
    EXPECT_EQ(shown({ { "b", 0, 900 }, { "a", 60, 30 } }), "ba") << "the later one died";
    EXPECT_EQ(shown({ { "b", 0, 60 }, { "a", 61, 900, R"(,"name":"edge-2")" } }), "ba")
        << "another name";
    EXPECT_EQ(shown({ { "b", 0, 9'000'000'000'000 }, { "a", 60, 1 } }), "ba");
    EXPECT_EQ(shown({ { "a", 60, 0 } }), "a") << "heard of once";
}

TEST(NodesCallTest, a_node_that_starts_again_and_again_leaves_one_row)
{
    std::vector<Heard> nodes;
    for (std::uint64_t i = 0; i < 20; ++i) {
        nodes.push_back({ std::string(1, static_cast<char>('a' + i)), 60 + 2 * i, i % 2 });
    }
    EXPECT_EQ(shown(nodes), "a") << "the last one";
    nodes.insert(nodes.begin(), { "z", 0, 30 });
    EXPECT_EQ(shown(nodes), "z");
}

TEST(NodesCallTest, two_nodes_of_one_name_do_not_hide_each_others_end)
{
    EXPECT_EQ(shown({ { "b", 0, 600 }, { "a", 60, 900 } }), "ba") << "the older one";
    EXPECT_EQ(shown({ { "b", 0, 900 }, { "a", 60, 600 } }), "ba") << "the newer one";
    EXPECT_EQ(shown({ { "c", 0, 90 }, { "b", 92, 900 }, { "a", 500, 900 } }), "ca")
        << "one of them was restarted, the other one had gone before";
}

TEST(NodesCallTest, a_node_that_ended_is_not_shown_but_is_part_of_the_history)
{
    const std::string ended = R"(,"ended":1)";
    EXPECT_EQ(shown({ { "b", 0, 60, R"(,"name":"edge-2")" }, { "a", 1, 900, ended } }), "b");
    EXPECT_EQ(shown({ { "a", 0, 900, ended + R"(,"ended":0)" } }), "a") << "the last one counts";
    EXPECT_EQ(shown({ { "c", 0, 5 }, { "b", 6, 900, ended }, { "a", 100, 900 } }), "ca")
        << "c began in place of b, and the end of a stays seen";

    NodeList list = two_nodes();
    list.reported[0].report = R"({"name":"edge-1","ended":1,"history_start":1783999980,)"
                              R"("history_passed":[7],"history_refused":[5]})";
    NodesReader reader(list);
    EXPECT_FALSE(reader.read(SIZE_MAX));
    ASSERT_EQ(reader.nodes().size(), 1U);
    EXPECT_EQ(reader.nodes()[0].id, "bb");
    EXPECT_EQ(reader.gone(), 1U);
    EXPECT_EQ(reader.history()[0].passed, std::vector<std::uint64_t>{ 7 });
}

TEST(NodesCallTest, counts_the_nodes_that_have_no_room)
{
    NodeList list = two_nodes();
    list.nodes = 9;
    std::string zones = "{}";
    for (std::size_t i = 1; i < most_zones; ++i) {
        zones += ",{}";
    }
    const std::size_t room = NodesReader::most_zones_of_all / most_zones;
    list.reported.insert(
        list.reported.end(), room + 3, { "cc", 5, R"({"zones":[)" + zones + "]}" });
    list.nodes = list.reported.size() + 7;
    NodesReader reader(list);
    EXPECT_FALSE(reader.read(SIZE_MAX));
    EXPECT_EQ(reader.left_out(), 7U + 3U);
    EXPECT_EQ(reader.unreadable(), 0U);
    EXPECT_EQ(reader.nodes().size() + reader.gone(), 2 + room);
}

TEST(NodesCallTest, takes_no_time_of_Redis_that_no_calendar_has)
{
    EXPECT_FALSE(listed("*5\r\n:-1\r\n:0\r\n:0\r\n*0\r\n*0\r\n"));
    EXPECT_FALSE(listed("*5\r\n:9007199254740993\r\n:0\r\n:0\r\n*0\r\n*0\r\n"));
    EXPECT_FALSE(listed("*5\r\n:1\r\n:-1\r\n:0\r\n*0\r\n*0\r\n"));
    EXPECT_TRUE(listed("*5\r\n:1\r\n:0\r\n:0\r\n*0\r\n*0\r\n"));
}

TEST(NodesCallTest, reports_are_read_in_parts)
{
    NodeList list = two_nodes();
    const std::size_t size = list.reported[0].report.size();
    list.reported.insert(list.reported.end(), 3, { "cc", list.now_us, R"({"name":"edge-3"})" });
    NodesReader reader(list);
    EXPECT_TRUE(reader.read(0));
    EXPECT_EQ(reader.nodes().size(), 1U) << "one at least";
    EXPECT_TRUE(reader.read(2 * size + 2));
    EXPECT_EQ(reader.nodes().size(), 3U);
    EXPECT_FALSE(reader.read(SIZE_MAX));
    EXPECT_EQ(reader.nodes().size(), 5U);
    EXPECT_FALSE(NodesReader({}).read(0));
}

}  // namespace
}  // namespace ratelimit::fleet
