// The fleet's scripts and how a node follows them, on a real Redis.

#include "fleet_fixture.h"
#include "resp_reply.h"

namespace ratelimit::fleet {
namespace {

TEST_F(FleetTest, a_node_takes_what_was_set_and_what_was_removed)
{
    EXPECT_EQ(set("a", 5), "done");
    EXPECT_EQ(set("b", 6), "done");
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(node_.quota("b"), 6);
    EXPECT_EQ(set("a", 7), "done");
    EXPECT_EQ(remove("b"), "done");
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 7);
    EXPECT_EQ(node_.quota("b"), 0);
    EXPECT_EQ(remove("b"), "no");
    EXPECT_EQ(overrides_in_redis(), "1");
    EXPECT_EQ(server_.ask({ "HLEN", keys_.overrides }), "2") << "and the empty one";
}

TEST_F(FleetTest, changes_are_taken_in_their_order)
{
    set("a", 5);
    remove("a");
    set("a", 6);
    set("b", 1);
    remove("b");
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 6);
    EXPECT_EQ(node_.quota("b"), 0);
    TestNode second;
    sync(second);
    remove("a");
    set("a", 7);
    remove("a");
    for (TestNode* node : { &node_, &second }) {
        sync(*node);
        EXPECT_EQ(node->quota("a"), 0);
    }
}

TEST_F(FleetTest, a_stored_override_says_when_it_was_set_and_when_it_ends)
{
    set("a", 5, milliseconds{ 90'000 });
    const auto stored = parse_stored(stored_);
    EXPECT_EQ(stored.value.end - stored.at, milliseconds{ 90'000 });
    EXPECT_EQ(server_.ask({ "HGET", keys_.overrides, key_id("a").text() }), stored_);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.ends }), "1");
    set("a", 5);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.ends }), "0") << "it does not end any more";
}

TEST_F(FleetTest, an_ended_override_is_removed_and_the_nodes_learn_it)
{
    set("a", 5, milliseconds{ 30 });
    set("b", 5);
    sync(node_);
    loop_.run_for(milliseconds{ 40 });
    TestNode second;
    sync(second);
    EXPECT_EQ(second.count(), 1U);
    EXPECT_EQ(overrides_in_redis(), "1");
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 0);
    EXPECT_EQ(node_.quota("b"), 5);
}

TEST_F(FleetTest, a_node_that_only_reads_writes_nothing)
{
    set("a", 5, milliseconds{ 1 });
    loop_.run_for(milliseconds{ 5 });
    sync(node_, {});
    EXPECT_EQ(node_.count(), 1U) << "an ended override is still there, with its end";
    EXPECT_EQ(server_.ask({ "EXISTS", keys_.alive, keys_.nodes }), "0");
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.changes }), "1");
}

TEST_F(FleetTest, a_freed_key_is_an_event_that_each_node_hears_once)
{
    sync(node_);
    EXPECT_EQ(free("a"), "done");
    sync(node_);
    sync(node_);
    EXPECT_EQ(node_.freed_keys, std::vector<std::string>{ "zone/a" });
    free("a");
    sync(node_);
    EXPECT_EQ(node_.freed_keys.size(), 2U);
}

TEST_F(FleetTest, a_node_hears_of_each_key_whose_limit_changes)
{
    set("a", 5);
    sync(node_);
    remove("a");
    change(
        ChangeCall::Change::set, { ChangeId::Kind::zone_override, "zone", {} }, "{\"block\":true");
    sync(node_);
    EXPECT_EQ(node_.changed_keys, (std::vector<std::string>{ "zone/a", "zone/a" }));
}

TEST_F(FleetTest, a_reply_that_promises_more_and_does_not_lead_on_is_malformed)
{
    for (const int cursor : { 5, 6 }) {
        const std::string reply =
            "*8\r\n:1\r\n:" + std::to_string(cursor) + "\r\n:1\r\n:0\r\n:0\r\n:0\r\n:1\r\n:5\r\n";
        EXPECT_EQ(SyncReply::parse(*reply_of(reply)).has_value(), cursor > 5);
    }
}

TEST_F(FleetTest, many_changes_come_in_pages)
{
    change_many(ChangeCall::Change::set, 0, 2500);
    EXPECT_EQ(calls_of_sync(node_), 3);
    EXPECT_EQ(node_.count(), 2500U);
    for (int i = 0; i < 2500; ++i) {
        ASSERT_EQ(node_.quota("key " + std::to_string(i)), i + 1);
    }
    change_many(ChangeCall::Change::remove, 0, 1200);
    sync(node_);
    EXPECT_EQ(node_.count(), 1300U);
}

TEST_F(FleetTest, after_a_reply_that_is_late_the_pages_are_smaller)
{
    change_many(ChangeCall::Change::set, 0, 2500);
    server_.pause();
    EXPECT_EQ(sync(node_), Sync::End::failed);
    server_.resume();
    EXPECT_GE(calls_of_sync(node_), 6);
    EXPECT_EQ(node_.count(), 2500U);
    TestNode fresh;
    fresh.memory().shared().page.store(UINT32_MAX);  // whatever stands there
    EXPECT_EQ(sync(fresh), Sync::End::known);
}

/// Makes all overrides an hour older.
const std::string age = R"(
    local sum = 0
    local all = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
    for i = 1, #all, 2 do
        local version = tonumber(all[i + 1]) - 3600 * 1000000
        redis.call('ZADD', KEYS[1], string.format('%.0f', version), all[i])
        sum = (sum + version) % 2 ^ 52
    end
    redis.call('HSET', KEYS[2], 'sum', string.format('%.0f', sum))
)";

TEST_F(FleetTest, many_overrides_are_read_in_pages_however_old_they_are)
{
    change_many(ChangeCall::Change::set, 0, 2500);
    sync(node_);
    server_.ask({ "EVAL", age, "2", keys_.changes, keys_.state });
    TestNode fresh;
    for (TestNode* node : { &fresh, &node_ }) {  // that starts, and that runs
        node->set_cursor(0);
        EXPECT_LE(calls_of_sync(*node), 4);
        EXPECT_EQ(node->count(), 2500U);
        EXPECT_EQ(node->quota("key 2499"), 2500);
    }
    set("another", 7);
    sync(fresh);
    EXPECT_EQ(fresh.quota("another"), 7);
}

TEST_F(FleetTest, nodes_are_counted_while_they_are_heard_of)
{
    TestNode second;
    sync(node_);
    sync(second);
    sync(node_);
    EXPECT_EQ(node_.memory().nodes(), 2);
    EXPECT_EQ(server_.ask({ "HLEN", keys_.nodes }), "2");
    server_.ask({ "ZADD", keys_.alive, "1", std::string(second.memory().id()) });
    server_.ask({ "ZADD", keys_.alive, "inf", "of another clock" });
    sync(node_);
    EXPECT_EQ(server_.ask({ "HLEN", keys_.nodes }), "1") << "forgotten after an hour";
    TestNode third;
    sync(third);
    EXPECT_EQ(third.memory().nodes(), 2);
}

TEST_F(FleetTest, fewer_nodes_count_only_if_redis_has_listed_them_for_as_long_as_a_node_lives)
{
    constexpr std::chrono::seconds long_enough{ 6 };
    TestNode second;
    const auto nodes_after = [this](microseconds of_fewer) {
        FleetMemory::Fewer& fewer = node_.memory().shared().fewer;
        if (of_fewer.count() > 0 && fewer.since_us != 0) {
            fewer.since_us -= of_fewer.count();
        }
        sync(node_);
        return node_.memory().nodes();
    };
    sync(second);
    sync(node_);
    const std::vector<std::vector<std::string>> losses = { { "FLUSHALL" }, { "DEL", keys_.alive } };
    for (const auto& loss : losses) {
        node_.memory().shared().nodes.store(2);
        server_.ask(loss);
        EXPECT_EQ(nodes_after(microseconds{ 0 }), 2);
        EXPECT_EQ(nodes_after(long_enough), 2) << "the second one may be about to call";
        // As if the list had begun earlier.
        server_.ask({ "HINCRBY", keys_.state, "since", "-6000000" });
        EXPECT_EQ(nodes_after(microseconds{ 0 }), 2);
        EXPECT_EQ(nodes_after(long_enough), 1);
    }
    node_.memory().shared().nodes.store(2);
    server_.ask({ "HINCRBY", keys_.state, "since", "60000000" });
    nodes_after(microseconds{ 0 });
    EXPECT_EQ(nodes_after(long_enough), 2) << "the clock of Redis was set back";
}

TEST_F(FleetTest, all_is_loaded_again_after_flushall)
{
    set("a", 5);
    set("b", 6);
    sync(node_);
    server_.ask({ "FLUSHALL" });
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.count(), 0U);
    set("b", 7);
    sync(node_);
    EXPECT_EQ(node_.quota("b"), 7);
}

TEST_F(FleetTest, lost_changes_are_noticed_also_beside_new_ones)
{
    set("a", 5);
    set("b", 5);
    sync(node_);
    const std::string sum = server_.ask({ "HGET", keys_.state, "sum" });
    const std::string text = server_.ask({ "HGET", keys_.overrides, key_id("a").text() });
    const std::string version = server_.ask({ "ZSCORE", keys_.changes, key_id("a").text() });
    set("a", 9);
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 9);
    // As after a failover to a replica that has not got the last change: the rest is the same.
    server_.ask({ "ZADD", keys_.changes, version, key_id("a").text() });
    server_.ask({ "HSET", keys_.overrides, key_id("a").text(), text });
    server_.ask({ "HSET", keys_.state, "sum", sum });
    set("c", 1);
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 5);
    EXPECT_EQ(node_.quota("c"), 1);
}

TEST_F(FleetTest, nothing_is_missing_while_all_is_loaded_again)
{
    change_many(ChangeCall::Change::set, 0, 1500);
    sync(node_);
    node_.set_cursor(0);
    SyncOwner owner;
    Sync call({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, owner);
    ASSERT_TRUE(call.start("{}"));
    while (owner.ends == 0) {
        for (const int i : { 0, 700, 1499 }) {
            ASSERT_EQ(node_.quota("key " + std::to_string(i)), i + 1);
        }
        loop_.run_for(milliseconds{ 1 });
    }
    EXPECT_EQ(node_.count(), 1500U);
}

TEST_F(FleetTest, a_late_reply_changes_nothing)
{
    set("a", 5);
    sync(node_);
    SyncOwner late;
    Sync call({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, late);
    set("a", 6);
    ASSERT_TRUE(call.start("{}"));
    // Meanwhile another worker takes a later state.
    {
        const FleetMemory::Lock lock(node_.memory());
        node_.memory().table().remove(OverrideTable::zone_hash("zone"), "a");
        node_.memory().shared().cursor += 1'000;
    }
    ASSERT_TRUE(loop_.run_until([&] { return late.ends > 0; }));
    EXPECT_EQ(node_.quota("a"), 0);
}

TEST_F(FleetTest, versions_grow_although_the_clock_of_redis_steps_back)
{
    set("a", 5);
    sync(node_);
    // The version is an hour ahead of the clock, as if that had been set back.
    const auto ahead = node_.cursor() + 3'600'000'000U;
    server_.ask({ "HSET", keys_.state, "version", std::to_string(ahead) });
    sync(node_);
    set("a", 6);
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 6);
    EXPECT_GT(node_.cursor(), ahead);
    remove("a");
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 0);
}

TEST_F(FleetTest, a_version_that_ran_back_makes_a_node_load_all_again)
{
    set("a", 5);
    sync(node_);
    node_.set_cursor(node_.cursor() + 3'600'000'000U);
    set("a", 6);
    sync(node_);
    EXPECT_EQ(node_.quota("a"), 6);
}

TEST_F(FleetTest, a_node_that_was_away_for_long_loads_all_again)
{
    set("a", 5);
    sync(node_);
    set("b", 6);
    remove("a");
    server_.ask({ "DEL", keys_.events });
    node_.set_cursor(node_.cursor() - 601'000'000U);
    EXPECT_EQ(calls_of_sync(node_), 1) << "before the sum shows that it missed an end";
    EXPECT_EQ(node_.quota("a"), 0);
    EXPECT_EQ(node_.quota("b"), 6);
}

TEST_F(FleetTest, events_are_removed_after_ten_minutes)
{
    free("a");
    server_.ask({ "ZADD", keys_.events, "1000", "fzone" });
    sync(node_);
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.events }), "2") << "the later one, and the empty one";
}

TEST_F(FleetTest, changes_with_ids_of_a_later_version_do_not_make_a_node_load_all_again)
{
    set("a", 5);
    sync(node_);
    const ChangeId later{ static_cast<ChangeId::Kind>('g'), "zone", "b" };
    for (const auto what : { ChangeCall::Change::set, ChangeCall::Change::set,
                             ChangeCall::Change::remove, ChangeCall::Change::remove }) {
        change(what, later, R"({"block":true)");
        EXPECT_EQ(calls_of_sync(node_), 1);
        EXPECT_EQ(node_.quota("a"), 5);
        EXPECT_EQ(node_.quota("b"), 0);
        EXPECT_TRUE(node_.freed_keys.empty());
    }
    EXPECT_EQ(node_.count(), 1U);
}

TEST_F(FleetTest, a_full_memory_keeps_what_fits_and_counts_the_rest)
{
    TestNode small(FleetMemory::smallest_size);
    change_many(ChangeCall::Change::set, 0, 2500);
    sync(small);
    const auto fitting = small.count();
    EXPECT_GT(fitting, 1000U);
    EXPECT_EQ(small.memory().shared().left_out.load(), 2500 - fitting);
    set("another", 1);
    EXPECT_LE(calls_of_sync(small), 1) << "it does not load all again for each";
}

}  // namespace
}  // namespace ratelimit::fleet
