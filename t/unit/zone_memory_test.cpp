// A zone's memory as a whole, on nginx's slab memory: which entries are evicted, and the state
// after a worker is killed.

#include "slab_zone.h"

#include <functional>

namespace ratelimit {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr microseconds now = hours{ 24 * 365 };
constexpr Policy counted{ Algorithm::fixed_window, { 100, hours{ 24 } }, {}, {} };

class ZoneMemoryTest : public testing::Test {
protected:
    ZoneMemory memory() { return zone_.memory(); }

    Verdict count(std::string_view key, const Policy& policy = counted, microseconds at = now)
    {
        return zone_.decide({ key, policy }, at);
    }
    bool is_counted(std::string_view key)
    {
        return memory().local_limiter().peek({ key, counted }, now).remaining < 100;
    }
    void deny(std::string_view key)
    {
        Verdict refusal;
        refusal.retry_after = seconds{ 50 };
        memory().denials().add({ key, 1, 1 }, { 0, 0, now }, refusal, now, DenialCache::longest);
    }
    bool is_denied(std::string_view key)
    {
        return memory().denials().find({ key, 1, 1 }, now).has_value();
    }
    void lease(std::string_view key)
    {
        RunReply answer;
        answer.taken = 1000;
        answer.reset = hours{ 1 };
        memory().leases().add({ key, 1, 1 }, counted, answer, 999, now);
    }
    bool is_leased(std::string_view key)
    {
        return memory().leases().spend({ key, 1, 1 }, counted, 0, now).state.has_value();
    }
    void refuse(std::string_view key)
    {
        memory().log_runs().begin(key, LogRuns::Kind::refused, NGX_LOG_ERR, false, 1000);
    }

    static std::string key(int i) { return "key " + std::to_string(i); }
    /// The number of keys that are present: the newest of `total`.
    static int newest(int total, const std::function<bool(std::string_view)>& is_present)
    {
        int found = 0;
        while (found < total && is_present(key(total - 1 - found))) {
            ++found;
        }
        return found;
    }

    TestZone zone_{ std::size_t{ 64 } * 1024 };
};

constexpr int many = 5000;

TEST_F(ZoneMemoryTest, cached_refusals_take_a_quarter_beside_counted_keys)
{
    for (int i = 0; i < many; ++i) {
        count(key(i));
        deny(key(i));
    }
    const int denied = newest(many, [&](auto key) { return is_denied(key); });
    const int counted_keys = newest(many, [&](auto key) { return is_counted(key); });
    EXPECT_NEAR(counted_keys, 3 * denied, 6);
    EXPECT_EQ(memory().keys(), static_cast<std::uint64_t>(denied + counted_keys));
    EXPECT_EQ(memory().evictions(), 2U * many - memory().keys());
}

TEST_F(ZoneMemoryTest, leases_and_refusals_share_evenly)
{
    for (int i = 0; i < many; ++i) {
        lease(key(i));  // two blocks each
        deny(key(i));
    }
    const int denied = newest(many, [&](auto key) { return is_denied(key); });
    const int leased = newest(many, [&](auto key) { return is_leased(key); });
    EXPECT_NEAR(denied, 2 * leased, 6);
}

TEST_F(ZoneMemoryTest, log_runs_leave_three_quarters_to_counted_keys_and_do_not_count_as_evictions)
{
    for (int i = 0; i < many; ++i) {
        refuse(key(i));
    }
    EXPECT_EQ(memory().evictions(), 0U);
    EXPECT_EQ(memory().keys(), 0U);
    for (int i = 0; i < many; ++i) {
        count(key(i));
    }
    const int alone = newest(many, [&](auto key) { return is_counted(key); });
    EXPECT_EQ(memory().keys(), static_cast<std::uint64_t>(alone));
    EXPECT_EQ(memory().evictions(), static_cast<std::uint64_t>(many - alone));
    EXPECT_FALSE(memory().log_runs().empty()) << "a quarter remains for them";
    EXPECT_GT(alone, 200);
}

TEST_F(ZoneMemoryTest, a_small_table_evicts_none_of_its_own_entries)
{
    deny("refused");
    lease("leased");
    for (int i = 0; i < many; ++i) {
        count(key(i));
    }
    EXPECT_TRUE(is_denied("refused"));
    EXPECT_TRUE(is_leased("leased"));
}

TEST_F(ZoneMemoryTest, a_key_whose_log_fills_the_memory_keeps_it_beside_small_tables)
{
    const Policy log{ Algorithm::sliding_window_log, { 100'000, hours{ 24 } }, {}, {} };
    std::int64_t remaining = 0;
    for (int i = 0; i < 10'000; ++i) {
        remaining = count("key", log, now + microseconds{ i }).remaining;
    }
    EXPECT_EQ(remaining, 90'000);
    for (int i = 0; i < 20; ++i) {
        deny(key(i));
        lease(key(i));
        refuse(key(i));
    }
    EXPECT_EQ(count("key", log, now + seconds{ 1 }).remaining, 89'999);
}

TEST_F(ZoneMemoryTest, full_memory_counts_every_new_key_whatever_else_it_holds)
{
    const std::string long_key(110, 'l');
    for (int i = 0; i < many; ++i) {
        const std::string name = (i % 3 == 0 ? long_key : "") + key(i);
        refuse(name);
        deny(name);
        lease(name);
        ASSERT_EQ(count(name).remaining, 99) << i;
        ASSERT_EQ(count(name).remaining, 98) << i;
        ASSERT_TRUE(is_denied(name)) << i;
        ASSERT_TRUE(is_leased(name)) << i;
    }
    EXPECT_TRUE(take_log().empty());
}

TEST_F(ZoneMemoryTest, a_freed_key_is_dropped_everywhere_except_in_the_log)
{
    for (const std::string_view name : { "key", "other" }) {
        count(name);
        deny(name);
        lease(name);
        refuse(name);
        memory().top_refused().refuse(name, 1000, {});
    }
    EXPECT_EQ(memory().keys(), 6U);
    memory().forget_key("key");
    EXPECT_EQ(memory().keys(), 3U);
    EXPECT_FALSE(is_counted("key"));
    EXPECT_FALSE(is_denied("key"));
    EXPECT_TRUE(is_counted("other"));
    EXPECT_TRUE(is_denied("other"));
    EXPECT_FALSE(memory().log_runs().empty());
    std::array<TopRefused::Counter, 3> top{};
    EXPECT_EQ(memory().top_refused().top(top, 1000), 1U);
    EXPECT_EQ(top[0].key.view(), "other");
}

TEST_F(ZoneMemoryTest, keys_that_differ_only_after_a_nul_or_at_an_end_are_different)
{
    const std::string nul("key\0a", 5);
    const std::string long_key(128, 'k');
    std::vector<std::string> names = { "", std::string(1, '\0'), "key", nul, "key" + nul };
    for (const std::size_t length : { 23U, 24U, 25U, 127U, 128U }) {
        names.push_back(long_key.substr(0, length));
        names.push_back(long_key.substr(0, length - 1) + "x");
        names.push_back("x" + long_key.substr(0, length - 1));
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
        ASSERT_FALSE(is_counted(names[i])) << i;
        count(names[i]);
        deny(names[i]);
    }
    EXPECT_EQ(memory().keys(), 2 * names.size());
    for (const std::string& name : names) {
        EXPECT_EQ(count(name).remaining, 98);
        EXPECT_TRUE(is_denied(name));
    }
}

TEST_F(ZoneMemoryTest, a_reload_keeps_the_memory)
{
    count("key");
    ngx_shm_zone_t after = zone_.zone();
    EXPECT_EQ(ZoneMemory::init(&after, zone_.zone().data), NGX_OK);
    EXPECT_TRUE(is_counted("key"));
}

TEST_F(ZoneMemoryTest, a_zone_is_reinitialised_after_a_worker_is_killed_with_the_lock)
{
    for (int i = 0; i < many; ++i) {
        count(key(i));
    }
    memory().counters().count(1, 2);
    const auto evictions = memory().evictions();
    const auto keys = memory().keys();
    take_log();

    for (int crash = 0; crash < 3; ++crash) {
        ASSERT_NO_FATAL_FAILURE(zone_.in_killed_worker([&] { ZoneLock::lock(zone_.pool()); }));
        EXPECT_EQ(count("key").remaining, 99);
        EXPECT_EQ(take_log().size(), 1U) << "one line in the log";
        EXPECT_EQ(memory().keys(), 1U);
        EXPECT_EQ(count("key").remaining, 98);
        EXPECT_EQ(take_log().size(), 0U);
    }
    EXPECT_EQ(memory().counters().sum(1, 2), 1U);
    EXPECT_EQ(memory().evictions(), evictions);

    zone_.in_killed_worker([&] { ZoneLock::lock(zone_.pool()); });
    for (int i = 0; i < many; ++i) {
        count(key(i));
    }
    EXPECT_EQ(memory().keys(), keys) << "all memory is used again";
}

TEST_F(ZoneMemoryTest, a_zone_is_reinitialised_after_a_worker_is_killed_while_reinitialising_it)
{
    count("key");
    ASSERT_NO_FATAL_FAILURE(zone_.in_killed_worker([&] {
        ZoneLock::lock(zone_.pool());
        static_cast<ZoneLock::Head*>(zone_.pool()->data)->reset(zone_.pool());
    }));
    take_log();
    EXPECT_EQ(count("key").remaining, 99);
    EXPECT_EQ(take_log().size(), 1U);
}

TEST_F(ZoneMemoryTest, a_zone_keeps_everything_after_a_worker_is_killed_without_the_lock)
{
    ASSERT_NO_FATAL_FAILURE(zone_.in_killed_worker([&] {
        count("key");
        memory().counters().count(1, 2);
    }));
    EXPECT_EQ(count("key").remaining, 98) << "and the count was shared";
    EXPECT_EQ(memory().counters().sum(1, 2), 1U);
    EXPECT_TRUE(take_log().empty());
}

}  // namespace
}  // namespace ratelimit
