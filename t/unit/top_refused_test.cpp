// The most refused keys, on nginx's slab memory.

#include "slab_zone.h"

#include <map>
#include <random>
#include <set>

namespace ratelimit {
namespace {

constexpr time_t start = 1'700'000'000;

class TopRefusedTest : public testing::Test {
protected:
    void refuse(std::string_view key, int times, time_t now = start)
    {
        for (int i = 0; i < times; ++i) {
            keys_.refuse(key, now);
        }
    }
    /// "key: count" of the most refused keys.
    std::vector<std::string> top(std::size_t most = 10, time_t now = start)
    {
        std::vector<TopRefused::Counter> counters(most);
        counters.resize(keys_.top(counters, now));
        std::vector<std::string> all;
        for (const auto& counter : counters) {
            all.push_back(std::string(counter.key.view()) + ": " + std::to_string(counter.refused));
        }
        return all;
    }

    using Lines = std::vector<std::string>;

    TestZone zone_;
    TopRefused keys_ = zone_.memory().top_refused();
};

TEST_F(TopRefusedTest, the_most_refused_keys_come_first)
{
    refuse("a", 3);
    refuse(std::string_view("b\0c", 3), 7);
    refuse(std::string(128, 'x'), 5);
    EXPECT_EQ(
        top(), (Lines{ std::string("b\0c", 3) + ": 7", std::string(128, 'x') + ": 5", "a: 3" }));
    EXPECT_EQ(top(1), Lines{ std::string("b\0c", 3) + ": 7" });
    EXPECT_EQ(top(0), Lines{});
}

TEST_F(TopRefusedTest, a_dropped_key_is_counted_from_one_again)
{
    refuse("a", 3);
    refuse("b", 2);
    keys_.forget("a");
    keys_.forget("unknown");
    EXPECT_EQ(top(), Lines{ "b: 2" });
    refuse("a", 1);
    EXPECT_EQ(top(), (Lines{ "b: 2", "a: 1" }));
}

TEST_F(TopRefusedTest, a_key_that_was_not_refused_for_an_hour_is_dropped)
{
    refuse("a", 3);
    refuse("b", 2, start + 10);
    EXPECT_EQ(top(10, start + 3600), Lines{ "b: 2" });
    refuse("a", 1, start + 3600);
    EXPECT_EQ(top(10, start + 3600), (Lines{ "b: 2", "a: 1" }));
    EXPECT_EQ(top(10, start - 5000).size(), 2U) << "the clock was set back";
}

TEST_F(TopRefusedTest, a_busy_key_is_found_among_more_keys_than_there_are_counters)
{
    std::minstd_rand random(1);
    std::map<std::string, int> counts;
    const auto count = [&](const std::string& key) {
        ++counts[key];
        refuse(key, 1);
    };
    constexpr int total = 20'000;
    for (int i = 0; i < total; i += 4) {
        count("busy");
        count("often");
        count("rare " + std::to_string(random() % 3000));
        count("rare " + std::to_string(random() % 3000));
    }
    std::array<TopRefused::Counter, 128> counters{};
    const std::size_t found = keys_.top(counters, start);
    ASSERT_GE(found, 2U);
    std::set<std::string> first;
    for (std::size_t i = 0; i < found; ++i) {
        const auto& [refused, key] = counters[i];
        const auto truth = static_cast<std::uint64_t>(counts[std::string(key.view())]);
        ASSERT_GE(refused, truth) << key.view();
        ASSERT_LE(refused - key.error, truth) << key.view();
        if (i < 2) {
            first.emplace(key.view());
        }
    }
    EXPECT_EQ(first, (std::set<std::string>{ "busy", "often" }));
}

TEST_F(TopRefusedTest, a_larger_zone_has_more_counters)
{
    EXPECT_GE(TopRefused::capacity_for(std::size_t{ 1 } << 20U, 0), 100U);
    EXPECT_EQ(TopRefused::capacity_for(std::size_t{ 1 } << 30U, 0), 128U);
    EXPECT_EQ(TopRefused::capacity_for(32768, 0), 32768 / 50 / TopRefused::counter_size);
    EXPECT_EQ(TopRefused::capacity_for(32768, 20 * TopRefused::counter_size), 20U)
        << "all of the spare memory";
}

}  // namespace
}  // namespace ratelimit
