// The overrides in shared memory: finding, replacing, full memory, passes, killed writers, and
// readers beside a writer.

#include "override_fixture.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ratelimit {
namespace {

constexpr std::size_t mega = std::size_t{ 1024 } * 1024;

class OverrideTableTest : public OverridesTest {
protected:
    explicit OverrideTableTest(std::size_t size = mega) : OverridesTest(size) {}

    /// The quota of a key's override; 0: there is none.
    std::int64_t quota(std::string_view key, std::uint64_t of = zone)
    {
        const auto found = table().find(of, key);
        return found ? found->value.rate.quota : 0;
    }
    static std::string key(int i) { return "key " + std::to_string(i); }
};

class LargeOverrideTableTest : public OverrideTableTest {
protected:
    LargeOverrideTableTest() : OverrideTableTest(16 * mega) {}
};

TEST_F(OverrideTableTest, finds_what_was_put_under_its_zone_and_key_only)
{
    EXPECT_TRUE(put("a", 5, 1));
    EXPECT_TRUE(put("", 7, 2));
    EXPECT_TRUE(put(std::string("a\0b", 3), 9, 3));
    EXPECT_EQ(quota("a"), 5);
    EXPECT_EQ(quota(""), 7);
    EXPECT_EQ(quota(std::string("a\0b", 3)), 9);
    EXPECT_EQ(quota("b"), 0);
    EXPECT_EQ(quota("a", OverrideTable::zone_hash("other")), 0);
}

TEST_F(OverrideTableTest, keeps_all_parts_of_an_override)
{
    Override value;
    value.kind = Override::Kind::rate;
    value.rate = { 1'000'000'000, std::chrono::hours{ 24 * 366 } };
    value.burst = 1'000'000'000;
    value.end = milliseconds{ 1'795'370'706'153 };
    {
        const FleetMemory::Lock lock(memory());
        ASSERT_TRUE(table().put(zone, "a", { value, 42 }));
    }
    const auto found = table().find(zone, "a");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->value, value);
    EXPECT_EQ(found->version, 42U);
}

TEST_F(OverrideTableTest, keys_of_any_length_up_to_the_limit_are_told_apart_at_every_byte)
{
    for (std::size_t length = 1; length <= OverrideTable::key_limit; ++length) {
        const std::string text(length, 'x');
        ASSERT_TRUE(put(text, static_cast<std::int64_t>(length), length));
        std::string other = text;
        other.back() = 'y';
        EXPECT_EQ(quota(other), 0) << length;
    }
    for (std::size_t length = 1; length <= OverrideTable::key_limit; ++length) {
        EXPECT_EQ(quota(std::string(length, 'x')), static_cast<std::int64_t>(length));
    }
    EXPECT_FALSE(put(std::string(OverrideTable::key_limit + 1, 'x'), 1, 1000));
}

TEST_F(OverrideTableTest, another_version_replaces_also_an_older_one)
{
    put("a", 5, 10);
    put("a", 6, 11);
    EXPECT_EQ(quota("a"), 6);
    put("a", 7, 11);
    EXPECT_EQ(quota("a"), 6) << "the same version";
    put("a", 7, 9);
    EXPECT_EQ(quota("a"), 7) << "Redis went back to it";
    EXPECT_EQ(table().digest(), (OverrideDigest{ 1, 9 }));
    remove("a");
    EXPECT_EQ(quota("a"), 0);
    EXPECT_EQ(table().digest(), OverrideDigest{});
}

TEST_F(OverrideTableTest, what_does_not_fit_is_left_out_and_nothing_else_is_evicted)
{
    int fitting = 0;
    while (put(key(fitting), fitting + 1, static_cast<std::uint64_t>(fitting) + 1)) {
        ++fitting;
    }
    EXPECT_GT(fitting, 5000);
    EXPECT_FALSE(table().has_room(1));
    EXPECT_EQ(quota(key(fitting)), 0);
    for (int i = 0; i < fitting; ++i) {
        ASSERT_EQ(quota(key(i)), i + 1);
    }
    remove(key(0));
    EXPECT_TRUE(table().has_room(1));
    EXPECT_FALSE(table().has_room(OverrideTable::key_limit)) << "a long key takes two blocks";
    EXPECT_FALSE(put(std::string(OverrideTable::key_limit, 'x'), 1, 1));
    EXPECT_TRUE(put("new", 3, 100'000));
    EXPECT_EQ(quota("new"), 3);
}

TEST_F(OverrideTableTest, a_full_table_takes_changes_of_what_it_has_and_overrides_of_whole_zones)
{
    int fitting = 0;
    while (put(key(fitting), 1, 1)) {
        ++fitting;
    }
    EXPECT_TRUE(put(key(0), 2, 2));
    EXPECT_EQ(quota(key(0)), 2);
    EXPECT_EQ(quota(key(1)), 1);
    EXPECT_TRUE(put("", 3, 3));
    EXPECT_EQ(quota(""), 3);
    EXPECT_FALSE(put("another", 1, 4));
}

TEST_F(OverrideTableTest, a_pass_removes_what_it_did_not_see)
{
    put("stays", 1, 1);
    put("changes", 1, 2);
    put("goes", 1, 3);
    const FleetMemory::Lock lock(memory());
    table().begin_full_read();
    table().put(zone, "stays", rate_entry(1, 1));
    table().put(zone, "changes", rate_entry(2, 9));
    EXPECT_EQ(quota("goes"), 1) << "nothing is missing during the pass";
    table().end_full_read();
    EXPECT_EQ(quota("stays"), 1);
    EXPECT_EQ(quota("changes"), 2);
    EXPECT_EQ(quota("goes"), 0);
    EXPECT_EQ(table().digest(), (OverrideDigest{ 2, 10 }));
}

TEST_F(OverrideTableTest, a_client_cannot_choose_keys_that_hide_the_override_of_another)
{
    // Keys of one bucket under a hash that is the same on every node.
    const auto known_hash = [](std::string text) {
        return ngx_murmur_hash2(reinterpret_cast<u_char*>(text.data()), text.size());
    };
    constexpr std::uint32_t buckets = 4096;
    ASSERT_TRUE(put("honest", 7, 1));
    std::vector<std::string> chosen;
    for (int i = 0; chosen.size() < 300; ++i) {
        if ((known_hash(key(i)) ^ known_hash("honest")) % buckets == 0) {
            chosen.push_back(key(i));
            ASSERT_TRUE(put(chosen.back(), 9, chosen.size() + 1));
        }
    }
    EXPECT_EQ(quota("honest"), 7);
    remove(chosen.front());
    EXPECT_EQ(quota(chosen.front()), 0);
    EXPECT_EQ(table().digest().count, chosen.size());
}

TEST(KeyedHash, is_that_of_the_reference_implementation)
{
    const HashSecret secret{ 0x0706'0504'0302'0100, 0x0F0E'0D0C'0B0A'0908 };
    EXPECT_EQ(keyed_hash(secret, std::string_view{}), 0xABAC'0158'050F'C4DCU);
    std::string bytes(15, '\0');
    std::iota(bytes.begin(), bytes.end(), '\0');
    EXPECT_EQ(keyed_hash(secret, bytes), 0xD320'D86D'2A51'9956U);
}

TEST_F(OverrideTableTest, a_copy_has_all_that_fits)
{
    for (int length = 0; length <= 128; ++length) {
        EXPECT_TRUE(put(std::string(static_cast<std::size_t>(length), 'k'), length + 1, 100));
    }
    const auto copied = [this](std::size_t bytes) {
        std::vector<std::uint64_t> memory(bytes / sizeof(std::uint64_t) + 8);
        void* start = memory.data();
        std::size_t room = bytes + 64;
        std::align(64, bytes, start, room);
        OverrideTable::init(start, bytes, {});
        const OverrideTable to(start, bytes);
        const bool fits = to.copy(table());
        int found = 0;
        for (std::size_t length = 0; length <= 128; ++length) {
            const auto entry = to.find(zone, std::string(length, 'k'));
            found += entry ? 1 : 0;
            EXPECT_TRUE(!entry || entry->value.rate.quota == static_cast<std::int64_t>(length) + 1);
        }
        EXPECT_EQ(to.digest().count, static_cast<std::uint64_t>(found));
        EXPECT_EQ(to.digest() == table().digest(), fits);
        return std::pair(fits, found);
    };
    EXPECT_EQ(copied(OverrideTable::smallest_size), std::pair(true, 129));
    const auto [fits, found] = copied(OverrideTable::smallest_size / 2);
    EXPECT_FALSE(fits);
    EXPECT_GT(found, 20);
}

TEST_F(OverrideTableTest, agrees_with_a_map_over_random_changes)
{
    std::mt19937 random(7);
    std::unordered_map<std::string, std::int64_t> model;  // 0: removed
    std::uint64_t count = 0;
    // There are more keys than buckets.
    for (std::uint64_t version = 1; version < 100'000; ++version) {
        const auto number = static_cast<int>(random() % 6000);
        std::string name = key(number);
        name.resize(name.size() + static_cast<std::size_t>(number % 100), '.');
        std::int64_t& known = model[name];
        count -= known == 0 ? 0 : 1;
        if (random() % 3 == 0) {
            remove(name);
            known = 0;
        } else {
            const auto wanted = static_cast<std::int64_t>(random() % 1000) + 1;
            known = put(name, wanted, version) ? wanted : 0;
        }
        count += known == 0 ? 0 : 1;
    }
    EXPECT_GT(count, 3000U);
    EXPECT_EQ(table().digest().count, count);
    for (const auto& [name, wanted] : model) {
        ASSERT_EQ(quota(name), wanted);
    }
}

TEST_F(OverrideTableTest, overrides_stay_when_a_writer_is_killed_at_any_moment)
{
    std::mt19937 random(11);
    table().slot(zone);
    for (int i = 0; i < 200; ++i) {
        put(key(i), 1, 1);
    }
    for (int round = 0; round < 40; ++round) {
        const pid_t worker = start_worker([this] {
            for (std::uint64_t version = 2;; ++version) {
                const FleetMemory::Lock lock(memory());
                for (int i = 200; i < 400; ++i) {
                    table().put(zone, key(i), rate_entry(2, version));
                    table().remove(zone, key(i - 100 * static_cast<int>(version % 2) + 200));
                }
            }
        });
        std::this_thread::sleep_for(std::chrono::microseconds{ random() % 2000 });
        kill(worker, SIGKILL);
        status_of(worker);
        ngx_shmtx_force_unlock(&zone_.pool()->mutex, worker);
        for (int i = 0; i < 200; ++i) {
            ASSERT_EQ(quota(key(i)), 1) << "before the repair, too";
        }
        for (int i = 200; i < 600; ++i) {
            remove(key(i));
        }
        ASSERT_EQ(table().digest(), (OverrideDigest{ 200, 200 }));
        ASSERT_EQ(table().slot(zone)->count(), 200U);
    }
    EXPECT_FALSE(take_log().empty()) << "a line says that a worker died in a change";
    int more = 0;
    while (put("more " + key(more), 1, 1)) {
        ++more;
    }
    EXPECT_GT(more, 5000) << "no block was lost";
}

TEST_F(OverrideTableTest, a_reader_beside_a_writer_never_misses_or_mixes)
{
    constexpr int many = 4000;  // so that most lists have several
    for (int i = 0; i < many; ++i) {
        put(key(i), i + 1, 1);
    }
    std::atomic<bool> stop{ false };
    std::atomic<int> written{ 0 };
    std::thread writer([&] {
        for (std::uint64_t version = 2; !stop; ++version) {
            const auto i = static_cast<int>(version % many);
            written = i;
            put(key(i), i + 1, version);
            put("other", 999'999, version);
            remove("other");
        }
    });
    for (int i = 0; i < 4'000'000; ++i) {
        const int read = i % 4 == 0 ? i / 4 % many : written.load();
        const auto found = quota(key(read));
        if (found != read + 1) {
            ADD_FAILURE() << found << " for key " << read;
            break;
        }
    }
    stop = true;
    writer.join();
}

TEST_F(LargeOverrideTableTest, looking_up_one_of_100000_takes_a_fraction_of_a_microsecond)
{
    constexpr int many = 100'000;
    for (int i = 0; i < many; ++i) {
        ASSERT_TRUE(put(key(i), i + 1, static_cast<std::uint64_t>(i) + 1)) << i;
    }
    std::vector<std::string> keys;
    for (int i = 0; i < many; ++i) {
        keys.push_back(key(static_cast<int>(i * 7919LL % many)));
    }
    // The best of many short parts: in a long one, other processes would run, too.
    constexpr int part = 2000;
    auto best = std::chrono::nanoseconds::max();
    for (int round = 0; round < 5; ++round) {
        std::int64_t sum = 0;
        for (std::size_t begin = 0; begin < keys.size(); begin += part) {
            const auto begun = std::chrono::steady_clock::now();
            for (const std::string& each : std::span(keys).subspan(begin, part)) {
                sum += quota(each);
            }
            best =
                std::min(best, std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun));
        }
        EXPECT_EQ(sum, std::int64_t{ many } * (many + 1) / 2);
    }
    RecordProperty("nanoseconds", static_cast<int>(best.count() / part));
    EXPECT_LT(best.count() / part, 1000) << "0.1 us on an idle machine";
    std::printf("%ld ns for one look-up\n", static_cast<long>(best.count() / part));
}

TEST_F(OverrideTableTest, only_one_worker_leads_until_its_time_is_over_or_it_is_gone)
{
    using std::chrono::seconds;
    const ngx_pid_t own = ngx_pid;
    const pid_t other = start_worker(pause);
    EXPECT_TRUE(memory().lead(seconds{ 10 }, seconds{ 2 }));
    ngx_pid = other;
    EXPECT_FALSE(memory().lead(seconds{ 11 }, seconds{ 2 }));
    EXPECT_TRUE(memory().lead(seconds{ 12 }, seconds{ 2 })) << "the time of the first is over";
    ngx_pid = own;
    EXPECT_FALSE(memory().lead(seconds{ 13 }, seconds{ 2 }));
    kill(other, SIGKILL);
    status_of(other);
    EXPECT_TRUE(memory().lead(seconds{ 13 }, seconds{ 2 })) << "the other is gone";
    memory().stop_leading();
    EXPECT_EQ(memory().shared().leader.load(), 0);
}

TEST_F(OverrideTableTest, each_memory_has_another_random_id)
{
    PreparedZone<FleetMemory> second(mega);
    EXPECT_NE(memory().id(), second.memory().id());
    EXPECT_EQ(memory().id().find_first_not_of("0123456789abcdef"), std::string_view::npos);
}

}  // namespace
}  // namespace ratelimit
