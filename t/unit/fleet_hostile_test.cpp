// What else than the fleet's scripts may write into the fleet's keys, on a real Redis.

#include "fleet_fixture.h"

namespace ratelimit::fleet {
namespace {

class HostileFleet : public FleetTest {
protected:
    /// Adds members "MEMBER 1" to "MEMBER COUNT" with the scores from + step, from + 2 * step, and
    /// so on.
    void add(
        const std::string& key, int count, const std::string& from, const std::string& step,
        const std::string& member)
    {
        server_.ask({ "EVAL", R"(
            for i = 1, tonumber(ARGV[1]) do
                local score = string.format('%.17g', ARGV[2] + i * ARGV[3])
                redis.call('ZADD', KEYS[1], score, ARGV[4] .. ' ' .. i)
            end)",
                      "1", key, std::to_string(count), from, step, member });
    }
    /// Microseconds since the epoch by Redis's clock, and `ahead`.
    std::string time(std::int64_t ahead = 0)
    {
        return std::to_string(
            std::atoll(server_
                           .ask({ "EVAL", R"(
                local time = redis.call('TIME')
                return string.format('%.0f', time[1] * 1000000 + time[2]))",
                                  "0" })
                           .c_str())
            + ahead);
    }
    /// Whether changes still come, on the node that runs and on one that starts.
    void expect_changes_to_come()
    {
        static int quota = 100;
        ++quota;
        ASSERT_EQ(set("good", quota), "done");
        ASSERT_EQ(set("gone", quota), "done");
        TestNode fresh;
        for (TestNode* node : { &node_, &fresh }) {
            EXPECT_LE(calls_of_sync(*node), 12);
            EXPECT_EQ(node->quota("good"), quota);
            EXPECT_EQ(node->quota("gone"), quota);
        }
        ASSERT_EQ(remove("gone"), "done");
        free("freed");
        for (TestNode* node : { &node_, &fresh }) {
            const auto freed = node->freed_keys.size();
            EXPECT_LE(calls_of_sync(*node), 12);
            EXPECT_EQ(node->quota("gone"), 0);
            EXPECT_EQ(node->freed_keys.size(), freed + 1);
            EXPECT_EQ(calls_of_sync(*node), 1) << "it does not read again what it has read";
        }
    }
};

TEST_F(HostileFleet, scores_with_a_fraction_are_passed_over_however_many_there_are)
{
    set("a", 5);
    sync(node_);
    const std::string key = key_id("x").text();
    for (const std::string* where : { &keys_.changes, &keys_.events }) {
        add(*where, 2500, "5000", "0.0001", key);  // more than two pages between two versions
        add(*where, 2500, "7000.5", "1", key + "y");
        add(*where, 2500, time(-5'000'000) + ".5", "1", key + "z");
    }
    expect_changes_to_come();
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(node_.quota("x 1"), 0);
    EXPECT_EQ(node_.count(), 2U);
}

TEST_F(HostileFleet, negative_and_infinite_scores_and_equal_ones_are_passed_over)
{
    set("a", 5);
    sync(node_);
    for (const std::string* where : { &keys_.changes, &keys_.events }) {
        add(*where, 2500, "-5000", "0.5", "negative");
        add(*where, 2500, "5000", "0", "equal");
        add(*where, 10, "0", "inf", "infinite");
        add(*where, 10, "0", "-inf", "infinite");
        add(*where, 10, "1e300", "1", "large");
    }
    expect_changes_to_come();
    EXPECT_EQ(node_.quota("a"), 5);
}

TEST_F(HostileFleet, scores_ahead_of_the_version_are_not_read_again_and_again)
{
    set("a", 5);
    sync(node_);
    const std::string key = key_id("x").text();
    for (const std::string* where : { &keys_.changes, &keys_.events }) {
        add(*where, 2500, time(3'600'000'000), "1", key);
    }
    expect_changes_to_come();
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(std::atoi(server_.ask({ "ZCARD", keys_.events }).c_str()), 3)
        << "what no node reads is removed";
}

TEST_F(HostileFleet, changes_come_when_the_version_reaches_its_limit_and_when_it_is_none)
{
    set("a", 5);
    sync(node_);
    for (const auto* version : { "4503599627370494", "4503599627370490.5", "4503599627370495",
                                 "4503599627370496", "1e300", "-1e300", "inf", "nan", "x", "" }) {
        server_.ask({ "HSET", keys_.state, "version", version, "sum", version });
        sync(node_);
        set("before", 7);
        set("ends", 7, milliseconds{ 1 });
        expect_changes_to_come();
        TestNode fresh;
        for (TestNode* node : { &node_, &fresh }) {
            sync(*node);
            EXPECT_EQ(node->quota("a"), 5) << version;
            EXPECT_EQ(node->quota("before"), 7) << version;
            EXPECT_EQ(node->quota("ends"), 0) << version;
        }
    }
}

TEST_F(HostileFleet, a_list_passes_over_foreign_scores_and_comes_to_its_end)
{
    const std::string key = key_id("x").text();
    add(keys_.changes, 2500, "-5000", "0.5", key);
    add(keys_.changes, 2500, "5000", "0.0001", key + "y");
    server_.ask({ "ZADD", keys_.changes, "4999", key_id("old").text() });
    server_.ask({ "HSET", keys_.overrides, key_id("old").text(), R"({"block":true})" });
    set("good", 5);
    const auto listed = [&](const std::string& zone) {
        std::vector<std::string> found;
        std::int64_t after = 0;
        int pages = 0;
        do {
            TestList list(api_.list, keys_, zone, after, 10);
            EXPECT_TRUE(client_->send(list));
            EXPECT_TRUE(loop_.run_until([&] { return list.done; }));
            for (const auto& item : list.page.items) {
                found.push_back(item.key);
            }
            after = list.page.next;
        } while (after != 0 && ++pages < 5);
        EXPECT_EQ(after, 0) << "the end of " << zone;
        return found;
    };
    EXPECT_EQ(listed("zone"), (std::vector<std::string>{ "old", "good" }));
    EXPECT_EQ(listed(""), (std::vector<std::string>{ "good", "old" })) << "all zones";
}

TEST_F(HostileFleet, many_freed_keys_do_not_fill_redis)
{
    set("a", 5);
    set("b", 5);
    sync(node_);
    remove("a");
    add(keys_.events, 125'000, time(-1'000'000), "1", "fzone");
    TestNode other;
    int calls = 0;
    do {
        sync(other);
    } while (server_.ask({ "ZCARD", keys_.events }) != "100001" && ++calls < 20);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.events }), "100001");
    // The event of "a" may be among those.
    server_.ask({ "ZREM", keys_.events, key_id("a").text() });
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 0) << "a node that did not get an event misses nothing";
    EXPECT_EQ(node_.quota("b"), 5);
}

TEST_F(HostileFleet, a_wrong_type_in_any_key_changes_nothing_and_is_forgotten_with_the_key)
{
    for (const std::string* key : { &keys_.alive, &keys_.nodes, &keys_.changes, &keys_.overrides,
                                    &keys_.ends, &keys_.events, &keys_.state }) {
        server_.ask({ "FLUSHALL" });
        set("a", 5);
        sync(node_);
        set("b", 7);
        set("ends", 6, milliseconds{ 1 });
        free("x");
        sync(node_, {});
        const bool is_hash = key == &keys_.state || key == &keys_.nodes || key == &keys_.overrides;
        const std::vector<std::string> hash{ "HSET", *key, "field", "value" };
        const std::vector<std::string> zset{ "ZADD", *key, "5", "member" };
        for (const auto& wrong : { { "SET", *key, "text" }, is_hash ? zset : hash }) {
            server_.ask({ "RENAME", *key, "saved" });
            server_.ask(wrong);
            const auto digest = node_.memory().table().digest();
            // What only reports and ends are written to need not be read.
            const bool is_read = key != &keys_.alive && key != &keys_.nodes && key != &keys_.ends;
            EXPECT_EQ(sync(node_) == Sync::End::failed, is_read) << *key;
            EXPECT_EQ(node_.memory().table().digest(), digest) << *key;
            EXPECT_EQ(node_.quota("a"), 5) << *key;
            server_.ask({ "DEL", *key });
            server_.ask({ "RENAME", "saved", *key });
        }
        EXPECT_EQ(sync(node_), Sync::End::known) << *key;
        EXPECT_EQ(node_.quota("a"), 5) << *key;
        EXPECT_EQ(node_.quota("b"), 7) << *key;
        EXPECT_EQ(server_.ask({ "ZCARD", keys_.changes }), server_.ask({ "HLEN", keys_.overrides }))
            << "no override was removed from one of them only";
        // An operator deletes the key: changes come again.
        server_.ask({ "DEL", *key });
        expect_changes_to_come();
        const bool all_gone = key == &keys_.changes || key == &keys_.overrides;
        TestNode fresh;
        for (TestNode* node : { &node_, &fresh }) {
            sync(*node);
            EXPECT_EQ(node->quota("a"), all_gone ? 0 : 5) << *key;
        }
        remove("a");
        remove("b");
        EXPECT_EQ(server_.ask({ "HLEN", keys_.overrides }), server_.ask({ "ZCARD", keys_.changes }))
            << "what was left is removed, too";
    }
}

TEST_F(HostileFleet, hostile_values_are_passed_over)
{
    set("a", 5);
    server_.ask({ "ZADD", keys_.changes, "inf", "kzone\xff" });
    server_.ask({ "ZADD", keys_.changes, "-inf", "x" });
    server_.ask({ "ZADD", keys_.changes, "5000", std::string(5000, 'k') });
    server_.ask({ "ZADD", keys_.changes, "5001", key_id("text").text() });
    server_.ask({ "HSET", keys_.overrides, key_id("text").text(), "[[[[" });
    server_.ask({ "ZADD", keys_.changes, "5002", key_id("long").text() });
    server_.ask({ "HSET", keys_.overrides, key_id("long").text(),
                  R"({"block":true,"x":")" + std::string(100'000, 'x') + "\"}" });
    server_.ask({ "ZADD", keys_.events, "nan", "f" });
    server_.ask({ "ZADD", keys_.events, "1e18", "fzone" });
    server_.ask({ "ZADD", keys_.ends, "5", "kzone\xff" });
    server_.ask({ "ZADD", keys_.ends, "inf", "x" });
    server_.ask({ "HSET", keys_.state, "sum", "-7" });
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(node_.quota("long"), 0);
    EXPECT_EQ(calls_of_sync(node_), 1) << "it does not load all again each time";
    for (const auto* version : { "inf", "nan", "-5", "1e300", "text", "9007199254740993" }) {
        server_.ask({ "HSET", keys_.state, "version", version });
        EXPECT_EQ(sync(node_), Sync::End::known) << version;
        EXPECT_EQ(node_.quota("a"), 5);
    }
}

}  // namespace
}  // namespace ratelimit::fleet
