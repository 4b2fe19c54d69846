// Shared memory, read and written by several threads at one time, under ThreadSanitizer: they stand
// for worker processes. It reports each access that is ordered by neither a lock nor an atomic.

#include "../slab_zone.h"
#include "store/fleet_memory.h"
#include "store/override_table.h"

#include <atomic>
#include <functional>
#include <latch>
#include <memory>
#include <thread>

namespace ratelimit {
namespace {

constexpr int rounds = 3000;
constexpr int readers = 2;
constexpr int fewest_reads = 400;
constexpr microseconds now{ std::chrono::seconds{ 1'700'000'000 } };

std::string key_of(int number)
{
    // At most 128; every third key has a second block.
    return std::to_string(number % 64) + (number % 3 == 0 ? std::string(80, 'x') : "");
}

/// Runs all of it at one time, until the writers have ended. Each reader has some rounds also if
/// the machine runs the writers first: what they wrote last stays.
void run_together(
    const std::vector<std::function<void(int)>>& writers, const std::function<void(int)>& reader)
{
    std::atomic<std::size_t> writing = writers.size();
    std::latch started(static_cast<std::ptrdiff_t>(writers.size() + readers));
    std::vector<std::thread> threads;
    for (const auto& write : writers) {
        threads.emplace_back([&] {
            started.arrive_and_wait();
            for (int round = 0; round < rounds; ++round) {
                write(round);
            }
            --writing;
        });
    }
    for (int i = 0; i < readers; ++i) {
        threads.emplace_back([&] {
            started.arrive_and_wait();
            for (int round = 0; writing > 0 || round < fewest_reads; ++round) {
                reader(round);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST(OverrideTableThreads, a_look_up_beside_changes_finds_one_override_whole)
{
    constexpr std::size_t size = OverrideTable::smallest_size;
    const std::unique_ptr<void, decltype(&std::free)> memory(
        std::aligned_alloc(64, size), &std::free);
    OverrideTable::init(memory.get(), size, random_secret());
    const OverrideTable table(memory.get(), size);
    const std::uint64_t zone = OverrideTable::zone_hash("zone");
    std::atomic<std::uint64_t> found = 0;

    run_together(
        { [&](int round) {
            Override value;
            value.kind = Override::Kind::rate;
            value.rate = { round + 1, std::chrono::seconds{ round + 1 } };
            value.burst = round + 1;
            table.put(zone, key_of(round), { value, static_cast<std::uint64_t>(round + 1) });
            if (round % 5 == 0) {
                table.remove(zone, key_of(round / 2));
            }
            if (round % 100 == 0) {
                table.begin_full_read();
                table.end_full_read();
            }
        } },
        [&](int round) {
            if (const auto entry = table.find(zone, key_of(round))) {
                ++found;
                const auto number = static_cast<std::int64_t>(entry->version);
                EXPECT_EQ(entry->value.rate.quota, number);
                EXPECT_EQ(entry->value.rate.window, std::chrono::seconds{ number });
                EXPECT_EQ(entry->value.burst, number);
            }
        });
    EXPECT_GT(found, 0U) << "look-ups met overrides";
}

TEST(KeyedTreeThreads, refusals_are_remembered_and_found_while_others_change)
{
    TestZone zone{ std::size_t{ 256 } * 1024 };
    constexpr std::uint64_t policy = 7;
    const Verdict refusal{ .granted = false, .retry_after = std::chrono::seconds{ 30 } };
    std::atomic<std::uint64_t> found = 0;

    const auto write = [&](int round) {
        const std::string key = key_of(round);
        DenialCache cache = zone.memory().denials();
        cache.add(
            { key, policy, 1 }, { 0, cache.forgets_of(key), now }, refusal, now,
            DenialCache::longest);
        if (round % 7 == 0) {
            cache.forget_key(key_of(round / 2));
        }
    };
    run_together({ write, write }, [&](int round) {
        const std::string key = key_of(round);
        DenialCache cache = zone.memory().denials();
        if (cache.may_have(key) && cache.find({ key, policy, 1 }, now)) {
            ++found;
        }
        EXPECT_LE(zone.memory().keys(), 128U);
    });
    EXPECT_GT(found, 0U);
}

TEST(ZoneCountersThreads, nothing_that_workers_count_is_lost)
{
    TestZone zone;
    const auto write = [&](int) {
        ZoneCounters counters = zone.memory().counters();
        counters.count(0, 1);
        counters.add(ZoneCounters::Units::passed, 3);
    };
    run_together({ write, write, write }, [&](int) {
        EXPECT_LE(zone.memory().counters().sum(0, 1), std::uint64_t{ 3 } * rounds);
    });
    EXPECT_EQ(zone.memory().counters().sum(0, 1), std::uint64_t{ 3 } * rounds);
    EXPECT_EQ(
        zone.memory().counters().sum(ZoneCounters::Units::passed), std::uint64_t{ 9 } * rounds);
}

TEST(HistoryThreads, workers_that_roll_at_one_time_count_each_request_once)
{
    TestZone zone{ History::all_series_from };
    std::atomic<std::uint64_t> passed = 0;
    const auto write = [&](int round) {
        History::Values totals{};
        totals[History::passed] = ++passed;
        History history = zone.memory().history();
        const time_t second = 1'700'000'100 + round / 1000;
        if (history.due(second) || round % 2 == 0) {
            history.roll(second, totals);
        }
    };
    run_together({ write, write }, [&](int) { zone.memory().history().read(0); });
    History::Values totals{};
    totals[History::passed] = passed;
    zone.memory().history().roll(1'700'000'104, totals);
    std::uint64_t sum = 0;
    for (const History::Values& step : zone.memory().history().read(0).values) {
        sum += step[History::passed] == History::unknown ? 0 : step[History::passed];
    }
    EXPECT_EQ(sum, passed);
}

}  // namespace
}  // namespace ratelimit
