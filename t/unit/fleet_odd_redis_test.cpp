// The fleet's scripts on a real Redis that has lost its data, is full, refuses to write, or has
// much to remove.

#include "fleet_fixture.h"

namespace ratelimit::fleet {
namespace {

microseconds moved_by{ 0 };
microseconds movable() noexcept
{
    return monotonic() + moved_by;
}

TEST_F(FleetTest, a_node_counts_fewer_nodes_only_after_each_reply_of_five_seconds_had_fewer)
{
    constexpr NodeClock clock{ movable, movable };
    // Redis has had the list of nodes for a minute.
    const std::string add_nodes = R"(local now = redis.call('TIME')[1]
        for i = 2, tonumber(ARGV[1]) do
            redis.call('ZADD', KEYS[1], now .. '000000', i)
        end
        redis.call('HSET', KEYS[2], 'since', now - 60 .. '000000'))";
    const auto nodes_after = [&](microseconds pause, int redis_knows) {
        moved_by += pause;
        server_.ask({ "DEL", keys_.alive });
        server_.ask(
            { "EVAL", add_nodes, "2", keys_.alive, keys_.state, std::to_string(redis_knows) });
        SyncOwner owner;
        Sync call({ node_.memory(), *client_, sync_script_, keys_, clock, node_ }, owner);
        EXPECT_TRUE(call.start("{}"));
        EXPECT_TRUE(loop_.run_until([&] { return owner.ends > 0; }));
        return node_.memory().nodes();
    };
    EXPECT_EQ(nodes_after(1s, 6), 6);
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(nodes_after(1s, 2 + i % 2), 6) << i;
    }
    EXPECT_EQ(nodes_after(1s, 2), 3) << "the most of these five seconds";
    EXPECT_EQ(nodes_after(1s, 5), 5) << "more count at once";
    EXPECT_EQ(nodes_after(1s, 4), 5);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(nodes_after(3s, 4), 5) << "a reply failed to come";
    }
    moved_by = {};
}

TEST_F(FleetTest, a_redis_that_refuses_to_write_is_read)
{
    sync(node_);
    set("a", 5);
    server_.ask({ "DEL", keys_.alive });
    server_.ask({ "SET", keys_.alive, "of a wrong type" });
    const auto reported = node_.memory().shared().reported_us.load();
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(node_.memory().shared().reported_us.load(), reported);
    EXPECT_EQ(node_.memory().nodes(), 1);
    server_.ask({ "DEL", keys_.alive });
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_GT(node_.memory().shared().reported_us.load(), reported);
}

TEST_F(FleetTest, a_redis_that_is_full_takes_all_that_a_fleet_writes)
{
    sync(node_);
    server_.ask({ "CONFIG", "SET", "maxmemory", "1" });
    EXPECT_EQ(set("a", 5), "done");
    EXPECT_EQ(set("b", 5, milliseconds{ 1 }), "done");
    EXPECT_EQ(free("c"), "done");
    loop_.run_for(milliseconds{ 5 });
    const auto reported = node_.memory().shared().reported_us.load();
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_GT(node_.memory().shared().reported_us.load(), reported);
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(node_.quota("b"), 0) << "it has ended";
    EXPECT_EQ(node_.freed_keys.size(), 1U);
    EXPECT_EQ(remove("a"), "done");
}

TEST_F(FleetTest, overrides_that_end_together_are_all_removed_at_once)
{
    for (int i = 0; i < 1000; ++i) {
        set(std::to_string(i), 5, milliseconds{ 50 });
    }
    sync(node_);
    loop_.run_for(milliseconds{ 60 });
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.count(), 0U);
    EXPECT_EQ(overrides_in_redis(), "0");
}

TEST_F(FleetTest, one_call_removes_no_more_than_2000_events)
{
    sync(node_);
    const std::string add = "for i = 1, 5000 do redis.call('ZADD', KEYS[1], ARGV[1], i) end";
    server_.ask({ "EVAL", add, "1", keys_.events, "1" });
    sync(node_);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.events }), "3001");
    sync(node_);
    sync(node_);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.events }), "1");
    server_.ask({ "EVAL", add, "1", keys_.events, "4e15" });
    sync(node_);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.events }), "3001") << "ahead of the version";
}

TEST_F(FleetTest, a_journal_that_was_lost_begins_before_the_next_change)
{
    sync(node_);
    server_.ask({ "FLUSHALL" });
    set("a", 5);
    sync(node_);
    EXPECT_EQ(server_.ask({ "ZRANK", keys_.journal, "" }), "0");
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.journal }), "2");
}

}  // namespace
}  // namespace ratelimit::fleet
