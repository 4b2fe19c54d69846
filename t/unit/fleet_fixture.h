#pragma once

#include "client_fixture.h"
#include "fleet/change_call.h"
#include "fleet/initial_load.h"
#include "fleet/session.h"
#include "slab_zone.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ratelimit::fleet {

inline microseconds monotonic() noexcept
{
    return std::chrono::duration_cast<microseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
}

inline constexpr NodeClock test_clock{ monotonic, monotonic };

/// A node's memory, and what its other parts hear of the fleet.
class TestNode final : public Session::Node, public ChangeListener {
public:
    explicit TestNode(std::size_t size = std::size_t{ 1024 } * 1024) : zone_(size) {}

    FleetMemory memory() { return zone_.memory(); }

    /// The quota of an override of the zone "zone"; 0: none. -1: a block.
    std::int64_t quota(std::string_view key)
    {
        const auto found = memory().table().find(OverrideTable::zone_hash("zone"), key);
        if (!found) {
            return 0;
        }
        return found->value.kind == Override::Kind::block ? -1 : found->value.rate.quota;
    }
    std::uint64_t count() { return memory().table().digest().count; }
    /// What the master process does when it hears of a worker's death.
    void master_unlocks(pid_t worker) { ngx_shmtx_force_unlock(&zone_.pool()->mutex, worker); }
    std::uint64_t cursor() { return memory().shared().cursor; }
    void set_cursor(std::uint64_t to)
    {
        const FleetMemory::Lock lock(memory());
        memory().shared().cursor = to;
    }

    std::string state() override { return "{}"; }
    bool stays() const noexcept override { return stays_; }
    void disconnected() noexcept override { ++disconnections; }
    void connected() noexcept override { ++connections; }
    void left_out(std::uint64_t count) noexcept override { lost = count; }
    void freed(std::string_view zone, std::string_view key) noexcept override
    {
        freed_keys.push_back(std::string(zone) + "/" + std::string(key));
    }
    void changed(std::string_view zone, std::string_view key) noexcept override
    {
        changed_keys.push_back(std::string(zone) + "/" + std::string(key));
    }

    std::vector<std::string> freed_keys;
    std::vector<std::string> changed_keys;
    int connections = 0;
    int disconnections = 0;
    std::uint64_t lost = 0;
    bool stays_ = true;

private:
    PreparedZone<FleetMemory> zone_;
};

/// Ends of a Sync, for tests that start one themselves.
class SyncOwner final : public Sync::Owner {
public:
    void synced(Sync::End end) noexcept override
    {
        last = end;
        ++ends;
    }

    Sync::End last = Sync::End::failed;
    int ends = 0;
};

class TestChange final : public ChangeCall {
public:
    using ChangeCall::ChangeCall;
    void changed(bool found, std::string_view text) noexcept override
    {
        outcome = found ? "done" : "no";
        stored = text;
    }
    void ended(redis::Fate why) noexcept override
    {
        fate = why;
        outcome = describe(why);
    }

    std::optional<redis::Fate> fate;
    std::string outcome;
    std::string stored;
};

class TestList final : public ListCall {
public:
    using ListCall::ListCall;
    void listed(OverridePage got) noexcept override
    {
        page = std::move(got);
        done = true;
    }
    void ended(redis::Fate) noexcept override { done = true; }

    OverridePage page;
    bool done = false;
};

/// A Redis with a client that has the fleet's scripts.
class FleetTest : public ClientTest {
protected:
    FleetTest()
    {
        sync_script_ = add_sync_script(scripts_);
        api_ = ApiScripts::add_to(scripts_);
        start_ready(options_to(server_.port()));
        load_scripts(server_);
    }

    std::string change(
        ChangeCall::Change what, const ChangeId& id, std::string text = {}, milliseconds lasts = {})
    {
        TestChange call(api_.change, keys_, what, id.text(), std::move(text), { lasts, {} });
        EXPECT_TRUE(client_->send(call));
        EXPECT_TRUE(loop_.run_until([&] { return !call.outcome.empty(); }));
        stored_ = call.stored;
        return call.outcome;
    }
    static ChangeId key_id(std::string_view key)
    {
        return { ChangeId::Kind::key_override, "zone", key };
    }
    std::string set(std::string_view key, int quota, milliseconds lasts = {})
    {
        return change(
            ChangeCall::Change::set, key_id(key), "{\"rate\":\"" + std::to_string(quota) + "r/s\"",
            lasts);
    }
    /// Sets or removes the keys "key FROM" to "key TO - 1"; those of set have the quota FROM + 1
    /// and so on.
    void change_many(ChangeCall::Change what, int from, int to)
    {
        std::vector<std::unique_ptr<TestChange>> calls;
        for (int i = from; i < to; ++i) {
            calls.push_back(std::make_unique<TestChange>(
                api_.change, keys_, what, key_id("key " + std::to_string(i)).text(),
                "{\"rate\":\"" + std::to_string(i + 1) + "r/s\""));
            ASSERT_TRUE(client_->send(*calls.back()));
        }
        ASSERT_TRUE(loop_.run_until([&] { return !calls.back()->outcome.empty(); }));
        for (const auto& call : calls) {
            ASSERT_EQ(call->outcome, "done");
        }
    }
    std::string remove(std::string_view key)
    {
        return change(ChangeCall::Change::remove, key_id(key));
    }
    std::string free(std::string_view key)
    {
        return change(ChangeCall::Change::free, { ChangeId::Kind::freed_key, "zone", key });
    }

    /// Without the empty member.
    std::string overrides_in_redis()
    {
        return server_.ask({ "ZCOUNT", keys_.changes, "0", "inf" });
    }

    /// Brings a node up to date.
    Sync::End sync(TestNode& node, std::string state = "{}")
    {
        SyncOwner owner;
        Sync call({ node.memory(), *client_, sync_script_, keys_, test_clock, node }, owner);
        for (int ends = 1; ends == 1 || owner.last == Sync::End::part; ++ends) {
            EXPECT_TRUE(call.start(state));
            EXPECT_TRUE(loop_.run_until([&] { return owner.ends >= ends; }));
            EXPECT_EQ(owner.ends, ends);
        }
        return owner.last;
    }

    /// The same; the number of its calls.
    long calls_of_sync(TestNode& node)
    {
        const long before = server_.calls("evalsha");
        EXPECT_EQ(sync(node), Sync::End::known);
        return server_.calls("evalsha") - before;
    }

    RedisServer server_;
    FleetKeys keys_{ "rl:" };
    redis::ScriptId sync_script_{};
    ApiScripts api_;
    std::string stored_;
    TestNode node_;
};

}  // namespace ratelimit::fleet
