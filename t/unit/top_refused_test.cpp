// The most refused keys, on nginx's slab memory.

#include "slab_zone.h"

#include <map>
#include <random>
#include <set>

namespace ratelimit {
namespace {

constexpr time_t begun = 1'700'000'000;

class TopRefusedTest : public testing::Test {
protected:
    void refuse(std::string_view key, int times, time_t now = begun)
    {
        for (int i = 0; i < times; ++i) {
            keys_.refuse(key, now, {});
        }
    }
    /// "key: count" of the most refused keys.
    std::vector<std::string> top(std::size_t most = 10, time_t now = begun)
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

    TestZone zone_{ std::size_t{ 256 } * 1024 };
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
    refuse("b", 2, begun + 10);
    EXPECT_EQ(top(10, begun + 3600), Lines{ "b: 2" });
    refuse("a", 1, begun + 3600);
    EXPECT_EQ(top(10, begun + 3600), (Lines{ "a: 1", "b: 2" })) << "who is refused now comes first";
    EXPECT_EQ(top(10, begun - 5000).size(), 2U) << "the clock was set back";
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
    const std::size_t found = keys_.top(counters, begun);
    ASSERT_GE(found, 2U);
    std::set<std::string> first;
    for (std::size_t i = 0; i < found; ++i) {
        const auto& [refused, rate, key] = counters[i];
        const auto truth = static_cast<std::uint64_t>(counts[std::string(key.view())]);
        ASSERT_GE(refused, truth) << key.view();
        ASSERT_LE(refused - key.error, truth) << key.view();
        if (i < 2) {
            first.emplace(key.view());
        }
    }
    EXPECT_EQ(first, (std::set<std::string>{ "busy", "often" }));
}

TEST_F(TopRefusedTest, a_key_has_the_rate_of_its_last_refusal_and_what_was_only_tried)
{
    const Rate rate{ 7, std::chrono::minutes{ 1 } };
    EXPECT_FALSE(keys_.last_rate("a"));
    keys_.refuse("a", begun, { .tried = true, .rate = {} });
    EXPECT_FALSE(keys_.last_rate("a"));
    keys_.refuse("a", begun + 5, { .tried = false, .rate = rate });
    keys_.refuse("a", begun + 9, { .tried = true, .rate = {} });
    EXPECT_EQ(keys_.last_rate("a"), rate);
    std::array<TopRefused::Counter, 1> found{};
    ASSERT_EQ(keys_.top(found, begun + 9), 1U);
    EXPECT_EQ(found.front().refused, 3U);
    EXPECT_EQ(found.front().key.tried, 2U);
    EXPECT_EQ(found.front().key.first_s, begun);
    keys_.forget("a");
    EXPECT_FALSE(keys_.last_rate("a"));
    keys_.refuse("a", begun + 20, {});
    ASSERT_EQ(keys_.top(found, begun + 20), 1U);
    EXPECT_EQ(found.front().key.tried, 0U);
    EXPECT_EQ(found.front().key.first_s, begun + 20);
}

TEST_F(TopRefusedTest, who_is_refused_now_comes_before_who_was_refused_most)
{
    refuse("old", 1000);
    refuse("new", 20, begun + 100);
    for (int i = 0; i < 900; ++i) {
        keys_.refuse("tried", begun + 100, { .tried = true, .rate = {} });
    }
    std::array<TopRefused::Counter, 3> found{};
    const auto rates = [&](time_t now) {
        std::vector<std::uint64_t> all(keys_.top(found, now));
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i] = found[i].per_1000_s;
        }
        return all;
    };
    using Rates = std::vector<std::uint64_t>;
    EXPECT_EQ(top(10, begun + 105), (Lines{ "new: 20", "old: 1000", "tried: 900" }));
    EXPECT_EQ(rates(begun + 105), (Rates{ 1333, 0, 0 })) << "20 in 15 seconds";
    EXPECT_EQ(rates(begun + 110), (Rates{ 2000, 0, 0 })) << "20 in the step before";
    refuse("new", 10, begun + 115);
    EXPECT_EQ(rates(begun + 115), (Rates{ 2000, 0, 0 })) << "30 in 15 seconds";
    EXPECT_EQ(rates(begun + 130), (Rates{ 0, 0, 0 }));
    EXPECT_EQ(top(10, begun + 130), (Lines{ "old: 1000", "tried: 900", "new: 30" }));
}

TEST_F(TopRefusedTest, a_worker_whose_time_is_a_little_older_counts_in_the_step_that_has_begun)
{
    const auto rate = [&](time_t now) {
        std::array<TopRefused::Counter, 1> found{};
        return keys_.top(found, now) == 0 ? 0 : found.front().per_1000_s;
    };
    const time_t step = begun + 10 - begun % 10;
    refuse("key", 50, step + 5);
    refuse("key", 1, step + 10);
    refuse("key", 1, step + 9);
    refuse("key", 1, step + 10);
    EXPECT_EQ(rate(step + 10), 5300U) << "53 in 10 seconds";
    EXPECT_EQ(rate(step + 9), 1000U * 53 / 19);
}

TEST_F(TopRefusedTest, a_larger_zone_has_more_counters)
{
    EXPECT_GE(TopRefused::capacity_for(std::size_t{ 1 } << 20U, 0), 100U);
    EXPECT_EQ(TopRefused::capacity_for(std::size_t{ 1 } << 30U, 0), 128U);
    EXPECT_EQ(TopRefused::capacity_for(32768, 0), 32768 / 40 / TopRefused::counter_size);
    EXPECT_EQ(TopRefused::capacity_for(32768, 20 * TopRefused::counter_size), 20U)
        << "all of the spare memory";
}

}  // namespace
}  // namespace ratelimit
