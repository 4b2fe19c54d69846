// The denial cache, on nginx's slab memory.

#include "slab_zone.h"

#include <limits>

namespace ratelimit {
namespace {

using std::chrono::seconds;

Verdict refusal(std::optional<microseconds> retry_after, seconds reset = seconds{ 20 })
{
    Verdict state;
    state.remaining = 3;
    state.reset = reset;
    state.retry_after = retry_after;
    return state;
}

class DenialCacheTest : public testing::Test {
protected:
    /// Adds a refusal whose check was sent at 100 s and answered at 102 s.
    void add(
        const KeyedRequest& request, const Verdict& state,
        microseconds at_most = DenialCache::longest, std::uint32_t server = 0)
    {
        denials_.add(request, { server, 0, seconds{ 100 } }, state, seconds{ 102 }, at_most);
    }
    bool refuses(const KeyedRequest& request, microseconds now = seconds{ 103 })
    {
        return denials_.find(request, now).has_value();
    }

    TestZone zone_;
    DenialCache denials_ = zone_.memory().denials();
    static constexpr std::uint64_t same_tag = 0x1234 + (std::uint64_t{ 1 } << 32U);
    const KeyedRequest request_{ "key", 0x1234, 1 };
};

TEST_F(DenialCacheTest, a_refusal_counts_down_from_the_sending_time_of_its_check)
{
    EXPECT_FALSE(denials_.may_have("key"));
    add(request_, refusal(seconds{ 10 }));
    EXPECT_TRUE(denials_.may_have("key"));
    const auto denial = denials_.find(request_, seconds{ 104 });
    ASSERT_TRUE(denial);
    EXPECT_FALSE(denial->state.granted);
    EXPECT_EQ(denial->state.retry_after, microseconds(seconds{ 6 }));
    EXPECT_EQ(denial->state.reset, seconds{ 16 });
    EXPECT_EQ(denial->state.remaining, 3);
    EXPECT_EQ(denial->cost, 1);
}

TEST_F(DenialCacheTest, a_refusal_expires_at_its_retry_time)
{
    add(request_, refusal(seconds{ 4 }));
    EXPECT_TRUE(refuses(request_, seconds{ 104 } - microseconds{ 1 }));
    EXPECT_FALSE(refuses(request_, seconds{ 104 }));
    EXPECT_FALSE(denials_.may_have("key"));
}

TEST_F(DenialCacheTest, a_refusal_expires_after_the_longest_time_allowed)
{
    add(request_, refusal(seconds{ 1000 }), seconds{ 5 });
    EXPECT_EQ(
        denials_.find(request_, seconds{ 104 })->state.retry_after, microseconds(seconds{ 996 }));
    EXPECT_FALSE(refuses(request_, seconds{ 105 }));
}

TEST_F(DenialCacheTest, a_retry_time_near_the_maximum_does_not_overflow)
{
    add(request_, refusal(microseconds::max(), seconds{ 1 }));
    const auto denial = denials_.find(request_, seconds{ 103 });
    ASSERT_TRUE(denial);
    EXPECT_GT(*denial->state.retry_after, seconds{ 1'000'000'000 });
    EXPECT_EQ(denial->state.reset, seconds{ 0 }) << "not below zero";
    EXPECT_FALSE(refuses(request_, seconds{ 105 }));
}

TEST_F(DenialCacheTest, refusals_without_a_usable_retry_time_or_cost_are_not_cached)
{
    constexpr std::int64_t too_much = std::int64_t{ 1 } << 32U;
    constexpr std::int64_t too_large = std::int64_t{ 1 } << 30U;
    add(request_, refusal(std::nullopt));
    add(request_, refusal(seconds{ 2 }));  // expired when it arrives
    add({ "key", 1, 0 }, refusal(seconds{ 10 }));
    add({ "key", 1, too_large }, refusal(seconds{ 10 }));
    Verdict much_left = refusal(seconds{ 10 });
    much_left.remaining = too_much;
    add(request_, much_left);
    EXPECT_FALSE(denials_.may_have("key"));
    add({ "key", 1, too_large - 1 }, refusal(seconds{ 10 }));
    EXPECT_TRUE(refuses({ "key", 1, too_large - 1 }));
}

TEST_F(DenialCacheTest, only_requests_of_the_same_cost_or_more_are_refused)
{
    add({ "key", 1, 5 }, refusal(seconds{ 10 }));
    EXPECT_FALSE(refuses({ "key", 1, 4 }));
    EXPECT_TRUE(refuses({ "key", 1, 5 }));
    EXPECT_EQ(denials_.find({ "key", 1, 50 }, seconds{ 103 })->cost, 5);
}

TEST_F(DenialCacheTest, other_keys_and_policies_are_not_refused)
{
    add(request_, refusal(seconds{ 10 }));
    EXPECT_FALSE(refuses({ "key2", 0x1234, 1 }));
    EXPECT_FALSE(refuses({ "key", 0x1235, 1 }));
    EXPECT_FALSE(refuses({ "key", same_tag, 1 })) << "a policy of the same tag";
    EXPECT_TRUE(refuses(request_));

    add({ "key", 0x1235, 1 }, refusal(seconds{ 10 }));
    EXPECT_TRUE(refuses(request_));
    EXPECT_TRUE(refuses({ "key", 0x1235, 1 }));
}

TEST_F(DenialCacheTest, a_policy_replaces_another_one_with_its_tag)
{
    add(request_, refusal(seconds{ 10 }));
    add({ "key", same_tag, 2 }, refusal(seconds{ 10 }));
    EXPECT_TRUE(refuses({ "key", same_tag, 2 }));
    EXPECT_FALSE(refuses(request_));
    EXPECT_EQ(zone_.memory().keys(), 1U);
}

TEST_F(DenialCacheTest, a_key_is_dropped_under_all_policies)
{
    add({ "key", 1, 1 }, refusal(seconds{ 10 }));
    add({ "key", 2, 1 }, refusal(seconds{ 10 }));
    add({ "key", 3, 1 }, refusal(seconds{ 10 }));
    add({ "other", 1, 1 }, refusal(seconds{ 10 }));
    denials_.forget_key("key");
    EXPECT_FALSE(refuses({ "key", 1, 1 }));
    EXPECT_FALSE(refuses({ "key", 2, 1 }));
    EXPECT_FALSE(refuses({ "key", 3, 1 }));
    EXPECT_TRUE(refuses({ "other", 1, 1 }));
}

TEST_F(DenialCacheTest, a_check_that_was_sent_before_its_key_was_dropped_brings_no_refusal)
{
    denials_.forget_key("key");
    add(request_, refusal(seconds{ 10 }));
    EXPECT_FALSE(refuses(request_));
    add({ "other", 1, 1 }, refusal(seconds{ 10 }));
    EXPECT_TRUE(refuses({ "other", 1, 1 }));
    const DenialCache::Check later{ 0, denials_.forgets_of("key"), seconds{ 100 } };
    denials_.add(request_, later, refusal(seconds{ 10 }), seconds{ 102 }, DenialCache::longest);
    EXPECT_TRUE(refuses(request_));
}

TEST_F(DenialCacheTest, dropping_a_key_drops_no_other_with_its_hash)
{
    // Both have the hash 0x9D9D62C0.
    for (const std::uint64_t tag : { 0x00U, 0x7FU, 0xFFU }) {
        add({ "key59736", tag, 1 }, refusal(seconds{ 10 }));
        add({ "key114227", tag, 1 }, refusal(seconds{ 10 }));
    }
    denials_.forget_key("key59736");
    for (const std::uint64_t tag : { 0x00U, 0x7FU, 0xFFU }) {
        EXPECT_FALSE(refuses({ "key59736", tag, 1 }));
        EXPECT_TRUE(refuses({ "key114227", tag, 1 }));
    }
}

TEST_F(DenialCacheTest, only_the_refusals_of_one_server_are_dropped_and_new_ones_cached)
{
    const KeyedRequest other{ "other", 0x1234, 1 };
    const KeyedRequest elsewhere{ "elsewhere", 0x1234, 1 };
    for (const std::uint32_t server : { 0U, 5U, 63U, 4'000'000'000U }) {
        add(request_, refusal(seconds{ 10 }), DenialCache::longest, server);
        add(other, refusal(seconds{ 10 }), DenialCache::longest, server);
        add(elsewhere, refusal(seconds{ 10 }), DenialCache::longest, server + 1);
        denials_.forget_server(server);
        EXPECT_FALSE(refuses(request_)) << server;
        EXPECT_FALSE(refuses(other)) << server;
        EXPECT_TRUE(refuses(elsewhere)) << server;
        add(request_, refusal(seconds{ 10 }), DenialCache::longest, server);
        EXPECT_TRUE(refuses(request_)) << server;
        EXPECT_FALSE(refuses(other)) << server;
    }
}

TEST_F(DenialCacheTest, a_clock_that_was_set_back_does_not_prolong_a_refusal)
{
    add(request_, refusal(seconds{ 50 }));
    EXPECT_TRUE(refuses(request_, seconds{ 101 }));
    EXPECT_FALSE(refuses(request_, seconds{ 99 })) << "longer than any refusal is cached";
    EXPECT_FALSE(denials_.may_have("key"));
}

TEST_F(DenialCacheTest, expired_refusals_are_removed_as_others_are_added)
{
    for (int i = 0; i < 50; ++i) {
        add({ "old " + std::to_string(i), 1, 1 }, refusal(seconds{ 10 }));
    }
    EXPECT_EQ(zone_.memory().keys(), 50U);
    for (int i = 0; i < 50; ++i) {
        const std::string key = "new " + std::to_string(i);
        denials_.add(
            { key, 1, 1 }, { 0, 0, seconds{ 110 } }, refusal(seconds{ 10 }), seconds{ 110 },
            DenialCache::longest);
    }
    EXPECT_EQ(zone_.memory().keys(), 50U);
    EXPECT_EQ(zone_.memory().evictions(), 0U);
}

TEST_F(DenialCacheTest, full_memory_evicts_the_least_recently_used_refusals)
{
    constexpr int count = 1000;
    const auto key = [](int i) { return "key " + std::to_string(i); };
    for (int i = 0; i < count; ++i) {
        add({ key(i), 1, 1 }, refusal(seconds{ 10 }));
        ASSERT_TRUE(refuses({ key(0), 1, 1 })) << "it is used all the time";
    }
    const auto kept = static_cast<int>(zone_.memory().keys());
    EXPECT_LT(kept, count / 2);
    EXPECT_EQ(zone_.memory().evictions(), static_cast<std::uint64_t>(count - kept));
    for (int i = 1; i < count; ++i) {
        ASSERT_EQ(refuses({ key(i), 1, 1 }), i > count - kept) << i;
    }
}

}  // namespace
}  // namespace ratelimit
