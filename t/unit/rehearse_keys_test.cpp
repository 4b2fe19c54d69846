// What ratelimit-rehearse remembers of keys: exact numbers up to a bound, estimates beyond it.

#include "rehearse/count/key_table.h"

#include <gtest/gtest.h>

#include <random>

namespace ratelimit::rehearse {
namespace {

TEST(RehearseKeys, are_counted_exactly_up_to_a_bound_and_estimated_beyond_it)
{
    std::mt19937_64 random(7);
    KeyTally tally(2);
    std::vector<std::uint64_t> hashes;
    const auto add = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            hashes.push_back(random());
            const KeyCount counts[] = { { 3, hashes.size() % 4 == 0 ? 1U : 0U }, { 0, 0 } };
            tally.put(hashes.back(), counts);
        }
    };
    add(KeyTally::most);
    EXPECT_TRUE(tally.exact());
    EXPECT_EQ(tally.numbers(0).keys, KeyTally::most);
    EXPECT_EQ(tally.numbers(0).keys_refused, KeyTally::most / 4);
    EXPECT_EQ(tally.numbers(1).keys, 0U) << "no request of the other limit";

    KeyCount counts[2];
    ASSERT_TRUE(tally.take(hashes[3], counts));
    EXPECT_EQ(counts[0].requests, 3U);
    EXPECT_EQ(counts[0].refused, 1U);
    EXPECT_FALSE(tally.take(hashes[3], counts)) << "it was taken";
    tally.put(hashes[3], counts);

    add(3 * KeyTally::most);
    EXPECT_FALSE(tally.exact());
    const auto numbers = tally.numbers(0);
    const auto expected = static_cast<double>(hashes.size());
    EXPECT_NEAR(static_cast<double>(numbers.keys), expected, expected / 100);
    EXPECT_NEAR(static_cast<double>(numbers.keys_refused), expected / 4, expected / 100);
}

TEST(RehearseKeys, the_busiest_keys_are_found_among_many_that_come_and_go)
{
    KeyTable table(Algorithm::fixed_window, 1, 3);
    for (std::int64_t i = 0; i < 200'000; ++i) {
        const bool busy = i % 100 < 3;
        const std::string text = busy ? "busy" + std::to_string(i % 100) : std::to_string(i);
        KeyTable::Key& key = table.find(text, KeyTable::hash_of(text), i);
        key.expires = i + 50;  // a busy key comes back after it was removed
        KeyCount& count = table.count(key, 0);
        count.requests += busy ? 3 - static_cast<std::uint64_t>(i % 100) : 1;
    }
    EXPECT_LT(table.alive(), 5'000U);
    EXPECT_EQ(table.numbers(0).keys, 194'003U);
    const auto busiest = table.busiest(0);
    ASSERT_EQ(busiest.size(), 3U);
    for (std::size_t i = 0; i < busiest.size(); ++i) {
        EXPECT_EQ(busiest[i].key, "busy" + std::to_string(i));
        EXPECT_EQ(busiest[i].count.requests, 2'000 * (3 - i));
    }
}

}  // namespace
}  // namespace ratelimit::rehearse
