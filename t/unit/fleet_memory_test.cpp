// The memory that the workers of a node share: workers that are stopped or killed while they change
// it, a configuration with another Redis, and overrides without room. On a real Redis.

#include "fleet_fixture.h"

#include <csignal>

namespace ratelimit::fleet {
namespace {

class SharedMemory : public FleetTest {
protected:
    /// Another process, which runs `work` while it has the memory's lock, and is then stopped.
    template <class Work>
    pid_t stopped_with_lock(TestNode& node, Work&& work)
    {
        const pid_t worker = start_worker([&] {
            const FleetMemory::Lock lock(node.memory());
            work();
            raise(SIGSTOP);
        });
        EXPECT_TRUE(WIFSTOPPED(status_of(worker, WUNTRACED)));
        return worker;
    }
    static void end(pid_t worker, int signal)
    {
        kill(worker, signal);
        status_of(worker);
    }
    std::uint64_t left_out(TestNode& node) { return node.memory().shared().left_out.load(); }
    std::string set_long(int number, int quota, milliseconds lasts = {})
    {
        return set(std::string(100, 'x') + std::to_string(number), quota, lasts);
    }
    std::string remove_long(int number)
    {
        return remove(std::string(100, 'x') + std::to_string(number));
    }
    /// As if the last pass was a while ago.
    static void let_pass(TestNode& node) { node.memory().shared().pass_ended_ms -= 10'000; }
};

TEST_F(SharedMemory, no_worker_waits_for_one_that_is_stopped_while_it_changes_the_memory)
{
    set("a", 5);
    sync(node_);
    set("a", 6);
    const pid_t stopped = stopped_with_lock(node_, [] {});
    const auto begun = std::chrono::steady_clock::now();
    SyncOwner owner;
    Sync call({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, owner);
    EXPECT_FALSE(call.start("{}"));
    const Session session(
        { node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, node_);
    loop_.run_for(50ms);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
    EXPECT_EQ(node_.quota("a"), 5) << "looking up needs no lock";
    end(stopped, SIGCONT);
    ASSERT_TRUE(loop_.run_until([&] { return node_.quota("a") == 6; }, 2s));
}

TEST_F(SharedMemory, a_reply_that_finds_a_worker_stopped_in_a_change_is_not_waited_for)
{
    set("a", 5);
    sync(node_);
    set("a", 6);
    SyncOwner owner;
    Sync call({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, owner);
    ASSERT_TRUE(call.start("{}"));
    const pid_t stopped = stopped_with_lock(node_, [] {});
    const auto begun = std::chrono::steady_clock::now();
    ASSERT_TRUE(loop_.run_until([&] { return owner.ends > 0; }));
    EXPECT_EQ(owner.last, Sync::End::failed);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
    end(stopped, SIGCONT);
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.quota("a"), 6);
}

TEST_F(SharedMemory, a_node_starts_although_a_worker_is_stopped_in_a_change)
{
    auto options = options_to(server_.port());
    options.server.connect_timeout = 100ms;
    options.server.timeout = 50ms;
    const pid_t stopped = stopped_with_lock(node_, [] {});
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_EQ(
        load_overrides(node_.memory(), options, keys_, test_clock),
        "a worker that is stopped holds their lock");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5s);
    end(stopped, SIGCONT);
    EXPECT_EQ(load_overrides(node_.memory(), options, keys_, test_clock), "");
}

TEST_F(SharedMemory, what_a_worker_was_killed_in_is_read_again)
{
    change_many(ChangeCall::Change::set, 0, 50);
    sync(node_);
    const pid_t stopped = stopped_with_lock(node_, [&] {
        const OverrideTable table = node_.memory().table();
        table.remove(OverrideTable::zone_hash("zone"), "key 7");
        node_.memory().shared().cursor += 1000;
    });
    end(stopped, SIGKILL);
    SyncOwner owner;
    Sync call({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, owner);
    EXPECT_FALSE(call.start("{}")) << "until the master process has noticed it";
    node_.master_unlocks(stopped);
    EXPECT_EQ(sync(node_), Sync::End::known);
    EXPECT_EQ(node_.count(), 50U);
    EXPECT_EQ(node_.quota("key 7"), 8);
    EXPECT_FALSE(take_log().empty());
}

TEST_F(SharedMemory, a_worker_of_an_earlier_configuration_changes_nothing_in_that_of_another_redis)
{
    constexpr std::uint64_t other = 7;
    const FleetKeys other_keys("other:");
    set("a", 5);
    sync(node_);
    SyncOwner owner;
    Sync in_flight({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, owner);
    set("a", 6);
    free("b");
    ASSERT_TRUE(in_flight.start("{}"));

    node_.memory().follow(other);
    EXPECT_FALSE(node_.memory().loaded());
    ASSERT_TRUE(loop_.run_until([&] { return owner.ends > 0; }));
    EXPECT_EQ(node_.quota("a"), 5) << "what is known stays until the other Redis answers";
    EXPECT_TRUE(node_.freed_keys.empty());
    EXPECT_FALSE(in_flight.start("{}"));

    ASSERT_EQ(
        load_overrides(node_.memory(), options_to(server_.port()), other_keys, test_clock, other),
        "");
    EXPECT_TRUE(node_.memory().loaded());
    EXPECT_EQ(node_.count(), 0U);
    const Session earlier(
        { node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, node_);
    loop_.run_for(50ms);
    EXPECT_EQ(node_.memory().shared().leader.load(), 0);
    EXPECT_EQ(node_.count(), 0U);

    node_.memory().follow(0);  // and back
    EXPECT_FALSE(node_.memory().loaded());
    ASSERT_TRUE(loop_.run_until([&] { return node_.quota("a") == 6; }, 2s));
}

TEST_F(SharedMemory, the_first_load_is_over_when_all_is_known_and_not_when_another_worker_read_more)
{
    constexpr std::uint64_t other = 7;
    const FleetKeys other_keys("other:");
    change_many(ChangeCall::Change::set, 0, 1500);
    sync(node_);
    // A worker of the earlier configuration reads all while the master process loads.
    SyncOwner owner;
    Sync earlier({ node_.memory(), *client_, sync_script_, keys_, test_clock, node_ }, owner);
    node_.set_cursor(0);
    ASSERT_TRUE(earlier.start("{}"));
    node_.memory().follow(other);
    EXPECT_EQ(
        load_overrides(node_.memory(), options_to(server_.port()), other_keys, test_clock, other),
        "");
    EXPECT_EQ(node_.count(), 0U);
    ASSERT_TRUE(loop_.run_until([&] { return owner.ends > 0; }));
    EXPECT_EQ(node_.count(), 0U);
}

TEST_F(SharedMemory, the_changes_of_another_redis_are_not_known_while_it_is_away)
{
    constexpr std::uint64_t other = 7;
    set("a", 5);
    sync(node_);
    EXPECT_TRUE(node_.memory().loaded());
    node_.memory().follow(other);
    EXPECT_NE(
        load_overrides(
            node_.memory(), options_to(free_port()), FleetKeys("other:"), test_clock, other),
        "");
    EXPECT_FALSE(node_.memory().loaded());
    EXPECT_EQ(node_.quota("a"), 5);
}

TEST_F(SharedMemory, a_load_that_one_redis_began_is_not_continued_by_another)
{
    constexpr std::uint64_t other = 7;
    const FleetKeys other_keys("other:");
    TestChange set(
        api_.change, other_keys, ChangeCall::Change::set, key_id("a").text(), "{\"block\":true");
    ASSERT_TRUE(client_->send(set));
    ASSERT_TRUE(loop_.run_until([&] { return set.outcome == "done"; }));
    sync(node_);
    {
        const FleetMemory::Lock lock(node_.memory());
        node_.memory().table().begin_full_read();
        node_.memory().shared().in_full_read = true;
    }
    node_.memory().follow(other);
    ASSERT_EQ(
        load_overrides(node_.memory(), options_to(server_.port()), other_keys, test_clock, other),
        "");
    EXPECT_EQ(node_.quota("a"), -1);
}

TEST_F(SharedMemory, overrides_without_room_are_counted_as_they_come_change_and_go)
{
    TestNode small(FleetMemory::smallest_size);
    change_many(ChangeCall::Change::set, 0, 2500);
    sync(small);
    const auto fitting = static_cast<int>(small.count());
    const auto without = static_cast<std::uint64_t>(2500 - fitting);
    EXPECT_EQ(left_out(small), without);
    set_long(1, 5);
    sync(small);
    EXPECT_EQ(left_out(small), without + 1) << "one more";
    set_long(1, 6);
    sync(small);
    EXPECT_EQ(left_out(small), without + 1) << "the same one, changed";
    remove_long(1);
    sync(small);
    EXPECT_EQ(left_out(small), without) << "it is gone";
    set("key 0", 7);
    sync(small);
    EXPECT_EQ(left_out(small), without) << "one that has room was changed";
    EXPECT_EQ(small.quota("key 0"), 7);
    set_long(2, 5, milliseconds{ 1 });
    sync(small);
    loop_.run_for(5ms);
    sync(small);
    sync(small);
    EXPECT_EQ(left_out(small), without) << "one that has ended";
}

TEST_F(SharedMemory, overrides_without_room_come_into_force_when_there_is_room)
{
    TestNode small(FleetMemory::smallest_size);
    change_many(ChangeCall::Change::set, 0, 2500);
    sync(small);
    const auto fitting = static_cast<int>(small.count());
    ASSERT_LT(fitting, 2400);
    EXPECT_EQ(small.quota("key 2499"), 0);
    change_many(ChangeCall::Change::remove, 0, 1000);
    sync(small);
    let_pass(small);
    sync(small);
    EXPECT_EQ(small.quota("key 2499"), 2500);
    EXPECT_EQ(left_out(small), 0U);
    EXPECT_EQ(small.count(), 1500U);
}

}  // namespace
}  // namespace ratelimit::fleet
