// Keys that a client chooses so that they have the same hash.

#include "slab_zone.h"

#include <array>
#include <chrono>
#include <set>

namespace ratelimit {
namespace {

/// Keys of eight bytes that have the same hash, or not.
std::vector<std::string> keys_of(bool one_hash, std::uint32_t count)
{
    constexpr std::uint32_t m = 0x5BD1'E995;  // of MurmurHash2
    std::uint32_t inverse = m;
    for (int i = 0; i < 5; ++i) {
        inverse *= 2 - m * inverse;
    }
    std::vector<std::string> keys;
    for (std::uint32_t i = 0; i < count; ++i) {
        std::uint32_t mixed = i * m;
        mixed = (mixed ^ mixed >> 24U) * m;
        // The second word that takes the hash of the first one to 0.
        std::uint32_t second = ((8 * m) ^ mixed) * m * inverse;
        second = (second ^ second >> 24U) * inverse;
        const std::array<std::uint32_t, 2> words{ i, one_hash ? second : 0 };
        keys.emplace_back(reinterpret_cast<const char*>(words.data()), sizeof(words));
    }
    return keys;
}

/// Seconds for counting and freeing each key.
double time_of(const std::vector<std::string>& keys)
{
    constexpr microseconds now = std::chrono::hours{ 24 * 365 };
    constexpr Policy once{ Algorithm::fixed_window, { 1, std::chrono::hours{ 24 } }, {}, {} };
    TestZone zone(std::size_t{ 8 } << 20U);
    const auto begun = std::chrono::steady_clock::now();
    for (const std::string& key : keys) {
        EXPECT_TRUE(zone.decide({ key, once }, now).granted);
        EXPECT_FALSE(zone.decide({ key, once }, now).granted);
    }
    EXPECT_EQ(zone.memory().keys(), keys.size());
    for (const std::string& key : keys) {
        zone.memory().local_limiter().forget_key(key);
    }
    EXPECT_EQ(zone.memory().keys(), 0U);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

TEST(CollidingKeys, keys_that_have_one_hash_on_purpose_cost_hardly_more_than_others)
{
    constexpr std::uint32_t count = 20'000;
    const auto colliding = keys_of(true, count);
    std::set<std::uint32_t> hashes;
    for (const std::string& key : colliding) {
        hashes.insert(KeyedTree::hash_of(key));
    }
    ASSERT_EQ(hashes.size(), 1U);
    const double others = time_of(keys_of(false, count));
    EXPECT_LT(time_of(colliding), 10 * others + 0.1);
}

}  // namespace
}  // namespace ratelimit
