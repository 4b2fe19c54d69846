// Lists of overrides, the initial load and the session of a node, on a real Redis.

#include "fleet_fixture.h"

#include "lua_scripts.h"

namespace ratelimit::fleet {
namespace {

TEST_F(FleetTest, overrides_of_a_zone_are_listed_in_pages)
{
    for (int i = 0; i < 25; ++i) {
        set(std::to_string(i), i + 1);
    }
    change(
        ChangeCall::Change::set, { ChangeId::Kind::zone_override, "zone", {} }, "{\"block\":true");
    change(
        ChangeCall::Change::set, { ChangeId::Kind::key_override, "zone2", "0" }, "{\"block\":true");
    server_.ask({ "ZADD", keys_.changes, "1.5", key_id("foreign").text() });
    server_.ask({ "HSET", keys_.overrides, key_id("foreign").text(), "{}" });
    std::vector<std::string> keys;
    std::int64_t after = 0;
    int pages = 0;
    do {
        TestList list(api_.list, keys_, "zone", after, 10);
        ASSERT_TRUE(client_->send(list));
        ASSERT_TRUE(loop_.run_until([&] { return list.done; }));
        for (const auto& item : list.page.items) {
            keys.push_back(item.key);
        }
        after = list.page.next;
        ++pages;
    } while (after != 0 && pages < 10);
    EXPECT_EQ(pages, 3);
    EXPECT_EQ(keys.size(), 26U);
    EXPECT_EQ(keys.front(), "0");
    EXPECT_EQ(keys.back(), "");
}

TEST_F(FleetTest, the_number_of_overrides_is_limited)
{
    const auto set_of_two = [&](std::string_view key) {
        return server_.ask({ "EVAL", std::string(lua::fleet_change), "8", keys_.alive, keys_.nodes,
                             keys_.changes, keys_.overrides, keys_.ends, keys_.events, keys_.state,
                             keys_.journal, "set", key_id(key).text(), "{\"block\":true", "0",
                             "2" });
    };
    EXPECT_NE(set_of_two("a"), "");
    EXPECT_NE(set_of_two("b"), "");
    EXPECT_EQ(set_of_two("c"), "");
    EXPECT_NE(set_of_two("a"), "") << "one that is there can be changed";
    EXPECT_EQ(server_.ask({ "ZCARD", keys_.changes }), "2");
}

TEST_F(FleetTest, a_change_whose_connection_is_lost_is_not_sent_again)
{
    // Sent again, it would undo what another node has changed since.
    for (const auto what :
         { ChangeCall::Change::set, ChangeCall::Change::remove, ChangeCall::Change::free }) {
        loop_.run_for(150ms);  // the connection has proved good
        server_.ask({ "CLIENT", "PAUSE", "10000", "WRITE" });
        const bool frees = what == ChangeCall::Change::free;
        TestChange call(api_.change, keys_, what, key_id("a").text(), "{\"block\":true");
        ASSERT_TRUE(client_->send(call));
        loop_.run_for(20ms);  // it is in flight
        server_.ask({ "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes" });
        server_.ask({ "CLIENT", "UNPAUSE" });
        ASSERT_TRUE(loop_.run_until([&] { return !call.outcome.empty(); }));
        EXPECT_EQ(call.outcome, frees ? "done" : "no connection");
        EXPECT_EQ(call.fate.value_or(redis::Fate::lost), redis::Fate::lost);
        EXPECT_TRUE(ChangeCall::maybe_changed(redis::Fate::lost));
        EXPECT_FALSE(ChangeCall::maybe_changed(redis::Fate::failed));
        EXPECT_EQ(server_.ask({ "ZCARD", keys_.events }), frees ? "1" : "0");
        EXPECT_EQ(server_.ask({ "ZCARD", keys_.changes }), "0");
    }
}

TEST_F(FleetTest, a_change_that_finds_no_connection_is_known_not_to_be_made)
{
    server_.kill();
    ASSERT_TRUE(loop_.run_until([this] { return events_.downs > 0; }));
    TestChange call(api_.change, keys_, ChangeCall::Change::set, key_id("a").text(), "{}");
    if (client_->send(call)) {
        ASSERT_TRUE(loop_.run_until([&] { return !call.outcome.empty(); }));
    }
    EXPECT_EQ(call.fate.value_or(redis::Fate::unsent), redis::Fate::unsent);
    EXPECT_FALSE(ChangeCall::maybe_changed(redis::Fate::unsent));
}

TEST_F(FleetTest, a_change_during_a_call_is_read_by_the_next_call_at_once)
{
    Session session({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, node_);
    ASSERT_TRUE(loop_.run_until([&] { return node_.connections == 1; }));
    loop_.run_for(50ms);
    const long before = server_.calls("evalsha");
    server_.pause();
    session.hurry();
    session.hurry();  // the call in flight may be too early for this change
    server_.resume();
    EXPECT_TRUE(loop_.run_until([&] { return server_.calls("evalsha") >= before + 2; }, 700ms))
        << "not a second after the call before";
}

TEST_F(FleetTest, the_initial_load_knows_all_or_says_why_not)
{
    set("a", 5);
    TestNode fresh;
    EXPECT_EQ(load_overrides(fresh.memory(), options_to(server_.port()), keys_, test_clock), "");
    EXPECT_EQ(fresh.quota("a"), 5);
    EXPECT_TRUE(fresh.memory().shared().loaded.load());

    auto options = options_to(server_.port());
    options.server.connect_timeout = 100ms;
    options.server.timeout = 50ms;
    server_.pause();
    TestNode away;
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_NE(load_overrides(away.memory(), options, keys_, test_clock), "");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 1s);
    EXPECT_FALSE(away.memory().shared().loaded.load());
    server_.resume();

    TestNode nowhere;
    EXPECT_NE(
        load_overrides(nowhere.memory(), options_to(free_port()), keys_, test_clock)
            .find("refused"),
        std::string::npos);
}

TEST_F(FleetTest, a_session_follows_redis_and_hands_over_when_it_leaves)
{
    const auto session = std::make_unique<Session>(
        Sync::Parts{ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, node_);
    ASSERT_TRUE(loop_.run_until([&] { return node_.connections == 1; }));
    EXPECT_EQ(node_.memory().shared().leader.load(), ngx_pid);
    set("a", 5);
    ASSERT_TRUE(loop_.run_until([&] { return node_.quota("a") == 5; }, 2s));
    // Again if the machine took that long: at the end of a call, so that the next is not due.
    bool hurried = false;
    for (int quota = 6; quota < 11 && !hurried; ++quota) {
        set("a", quota);
        session->hurry();
        const auto is_known = [&] { return node_.quota("a") == quota; };
        hurried = loop_.run_until(is_known, 300ms);
        ASSERT_TRUE(loop_.run_until(is_known));
    }
    EXPECT_TRUE(hurried);
    node_.stays_ = false;
    ASSERT_TRUE(loop_.run_until([&] { return node_.memory().shared().leader.load() == 0; }));
}

TEST_F(FleetTest, a_session_reports_once_that_redis_is_away_and_back)
{
    const Session session(
        { node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, node_);
    ASSERT_TRUE(loop_.run_until([&] { return node_.connections == 1; }));
    server_.pause();
    ASSERT_TRUE(loop_.run_until([&] { return node_.disconnections == 1; }));
    loop_.run_for(1500ms);
    EXPECT_EQ(node_.disconnections, 1);
    server_.resume();
    ASSERT_TRUE(loop_.run_until([&] { return node_.connections == 2; }));
}

}  // namespace
}  // namespace ratelimit::fleet
