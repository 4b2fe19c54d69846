// Whatever a worker that was taken over writes into the shared memory of the fleet, the calls of
// the master process return, and read and write only within it.

#include "fleet_fixture.h"
#include "override_fixture.h"

#include <cstring>
#include <ctime>
#include <functional>
#include <random>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

namespace ratelimit::fleet {
namespace {

/// Memory between pages that no process may touch.
class GuardedMemory {
public:
    explicit GuardedMemory(std::size_t size) : size_(size), page_(sysconf(_SC_PAGESIZE))
    {
        all_ = static_cast<char*>(
            mmap(nullptr, size_ + 2 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_EQ(mprotect(all_ + page_, size_, PROT_READ | PROT_WRITE), 0);
    }
    ~GuardedMemory() { munmap(all_, size_ + 2 * page_); }
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;

    std::span<std::uint32_t> words() const
    {
        return { reinterpret_cast<std::uint32_t*>(all_ + page_), size_ / sizeof(std::uint32_t) };
    }
    OverrideTable init() const
    {
        OverrideTable::init(all_ + page_, size_, {});
        return { all_ + page_, size_ };
    }

private:
    std::size_t size_;
    std::size_t page_;
    char* all_;
};

std::string key_of(unsigned number)
{
    return std::string(number % 129, 'k') + std::to_string(number).substr(0, number % 3);
}

const std::uint64_t test_zone = OverrideTable::zone_hash("zone");

void fill(const OverrideTable& table, unsigned count)
{
    table.slot(test_zone);
    for (unsigned i = 0; i < count; ++i) {
        table.put(test_zone, key_of(i), rate_entry(5, i));
    }
}

/// Ways to write nonsense into memory.
using Forge = std::function<void(std::span<std::uint32_t>, std::mt19937&)>;

const std::vector<Forge>& forgeries()
{
    static const std::vector<Forge> all = {
        [](std::span<std::uint32_t> words, std::mt19937& random) {
            std::generate(words.begin(), words.end(), std::ref(random));
        },
        // Each link leads to one of few blocks, so lists are circles.
        [](std::span<std::uint32_t> words, std::mt19937& random) {
            for (std::uint32_t& word : words) {
                word = 0xFF00'0000U | random() % 8;
            }
        },
        [](std::span<std::uint32_t> words, std::mt19937&) {
            std::fill(words.begin(), words.end(), UINT32_MAX);
        },
        // What was right, but for some words.
        [](std::span<std::uint32_t> words, std::mt19937& random) {
            for (int i = 0; i < 2000; ++i) {
                words[random() % words.size()] = random() % 2 == 0 ? random() : random() % 600;
            }
        },
        [](std::span<std::uint32_t> words, std::mt19937& random) {
            for (std::uint32_t& word : words) {
                if (random() % 8 == 0) {
                    word = 0xFF00'0000U | random() % 600;
                }
            }
        },
    };
    return all;
}

TEST(ForgedMemory, every_call_of_the_table_stays_within_it_and_returns)
{
    constexpr std::size_t size = std::size_t{ 96 } * 1024;
    const GuardedMemory forged(size);
    const GuardedMemory other(2 * size);
    std::mt19937 random(3);
    const auto begun = std::clock();
    for (unsigned round = 0; round < 200; ++round) {
        const OverrideTable table = forged.init();
        fill(table, 300);
        const Forge& forge = forgeries()[round % forgeries().size()];
        const std::vector<std::function<void()>> calls = {
            [&] { fill(table, 200); },
            [&] { other.init().copy(table); },
            [&] { table.repair(); },
            [&] {
                table.begin_full_read();
                fill(table, 10);
                table.end_full_read();
            },
            [&] {
                for (unsigned i = 0; i < 300; ++i) {
                    table.remove(test_zone, key_of(i));
                    table.find(test_zone, key_of(i));
                    table.find(test_zone, std::string(500, 'k'));
                }
            },
            [&] {
                table.count_added_zones();
                table.has_room(100);
                table.digest();
            },
        };
        for (const auto& call : calls) {
            forge(forged.words(), random);
            call();
        }
    }
    EXPECT_LT((std::clock() - begun) / CLOCKS_PER_SEC, 100) << "seconds of the processor";
}

TEST(ForgedMemory, a_table_of_keys_with_one_hash_is_copied_soon)
{
    constexpr std::size_t size = std::size_t{ 32 } << 20U;
    const GuardedMemory forged(size);
    const GuardedMemory other(size);
    const OverrideTable table = forged.init();
    fill(table, 1);
    // Every bucket leads to the same list, whose blocks all have different versions.
    std::mt19937 random(5);
    forgeries()[1](forged.words(), random);
    const auto begun = std::clock();
    other.init().copy(table);
    EXPECT_LT((std::clock() - begun) / CLOCKS_PER_SEC, 60) << "seconds of the processor";
}

class ForgedFleetMemory : public FleetTest {
protected:
    /// All of the memory but what nginx itself follows: the lock and its mutex.
    static void forge(SlabZone& zone, const Forge& how, std::mt19937& random)
    {
        ngx_slab_pool_t& pool = *zone.pool();
        const auto lock = pool.lock;
        const auto mutex = pool.mutex;
        how({ reinterpret_cast<std::uint32_t*>(&pool), zone.zone().shm.size / 4 }, random);
        pool.lock = lock;
        pool.mutex = mutex;
        if (random() % 2 == 0) {
            pool.mutex.lock = reinterpret_cast<ngx_atomic_t*>(0x4141'4141'4141);
            pool.mutex.semaphore = 1;
        }
    }
    static void restore(SlabZone& zone) { zone.pool()->mutex.lock = &zone.pool()->lock.lock; }

    static void init(SlabZone& zone, void* old_data = nullptr)
    {
        EXPECT_EQ(FleetMemory::init(&zone.zone(), old_data), NGX_OK);
    }
    /// As if nginx ran with this memory.
    static void run_with(ngx_shm_zone_t* zone)
    {
        auto* cycle = const_cast<ngx_cycle_t*>(ngx_cycle);
        cycle->shared_memory.part = { zone, zone == nullptr ? 0U : 1U, nullptr };
    }
};

TEST_F(ForgedFleetMemory, the_master_loads_overrides_into_it)
{
    change_many(ChangeCall::Change::set, 0, 50);
    std::mt19937 random(9);
    for (unsigned round = 0; round < 20; ++round) {
        SlabZone zone(FleetMemory::smallest_size);
        init(zone);
        void* const data = zone.zone().data;
        forge(zone, forgeries()[round % forgeries().size()], random);
        init(zone, data);  // a reload that keeps the memory
        const FleetMemory memory(zone.zone());
        memory.follow(0);
        memory.table().slot(OverrideTable::zone_hash("zone"));
        load_overrides(memory, options_to(server_.port()), keys_, test_clock);
        restore(zone);
    }
}

TEST_F(ForgedFleetMemory, the_master_takes_over_what_it_can_at_a_reload_with_another_size)
{
    std::mt19937 random(13);
    for (unsigned round = 0; round < 50; ++round) {
        SlabZone before(FleetMemory::smallest_size);
        init(before);
        fill(FleetMemory(before.zone()).table(), 300);
        forge(before, forgeries()[round % forgeries().size()], random);
        run_with(&before.zone());
        SlabZone after(2 * FleetMemory::smallest_size);
        init(after);
        run_with(nullptr);
        const FleetMemory::Lock lock(FleetMemory(after.zone()));
        EXPECT_TRUE(lock);
        restore(before);
    }
}

}  // namespace
}  // namespace ratelimit::fleet
