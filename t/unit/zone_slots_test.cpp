// How many overrides each zone has: zones that are configured or not, later, or too many.

#include "override_fixture.h"

#include <atomic>
#include <thread>

namespace ratelimit {
namespace {

class ZoneSlotsTest : public OverridesTest {
protected:
    ZoneSlotsTest() : OverridesTest(std::size_t{ 2 } * 1024 * 1024) {}

    void count_added() { const FleetMemory::Lock lock(memory()); }
    static std::uint64_t other(std::uint64_t number)
    {
        return OverrideTable::zone_hash("other " + std::to_string(number));
    }
};

TEST_F(ZoneSlotsTest, a_zones_slot_counts_its_overrides)
{
    OverrideTable::ZoneSlot* slot = table().slot(zone);
    count_added();
    EXPECT_FALSE(slot->any());
    put("a", 1, 1);
    put("a", 2, 2);
    put("b", 1, 3);
    EXPECT_EQ(slot->count(), 2U);
    put("", 1, 4);
    EXPECT_EQ(slot->count(), 3U);
    EXPECT_EQ(slot->whole.load(), 1U);
    for (const auto* each : { "a", "b", "" }) {
        remove(each);
    }
    EXPECT_FALSE(slot->any());
    EXPECT_EQ(table().slot(zone), slot);
}

TEST_F(ZoneSlotsTest, a_zone_that_is_not_configured_takes_no_slot)
{
    for (std::uint64_t i = 0; i < 2 * OverrideTable::most_zones; ++i) {
        ASSERT_TRUE(put("a", 5, i, other(i)));
    }
    put("a", 7, 1);
    ASSERT_NE(table().slot(zone), nullptr);
    count_added();
    EXPECT_EQ(table().slot(zone)->count(), 1U);
    ASSERT_TRUE(table().find(other(7), "a")) << "its overrides are known";
    EXPECT_EQ(table().digest().count, 2 * OverrideTable::most_zones + 1);
}

TEST_F(ZoneSlotsTest, a_zone_that_is_configured_later_has_its_overrides_at_once)
{
    put("a", 1, 1);
    put("b", 1, 2);
    put("", 1, 3);
    put("a", 1, 4, other(1));
    OverrideTable::ZoneSlot* slot = table().slot(zone);
    OverrideTable::ZoneSlot* empty = table().slot(other(2));
    EXPECT_TRUE(slot->any()) << "before they are counted, too";
    EXPECT_NE(slot->keys.load(), 0U);
    EXPECT_NE(slot->whole.load(), 0U);
    table().remove(zone, "a");
    EXPECT_TRUE(slot->any());
    EXPECT_EQ(slot->count(), 0U) << "not known";
    count_added();
    EXPECT_EQ(slot->count(), 2U);
    EXPECT_EQ(slot->whole.load(), 1U);
    EXPECT_FALSE(empty->any());
    remove("b");
    remove("");
    EXPECT_FALSE(slot->any());
}

TEST_F(ZoneSlotsTest, a_zone_beyond_the_limit_has_no_slot)
{
    for (std::uint64_t i = 0; i < OverrideTable::most_zones; ++i) {
        ASSERT_NE(table().slot(i + 1), nullptr);
    }
    EXPECT_EQ(table().slot(zone), nullptr);
    EXPECT_TRUE(put("a", 1, 1));
    for (std::uint64_t i = 0; i < OverrideTable::most_zones; ++i) {
        ASSERT_EQ(table().slot(i + 1)->count(), 0U);
    }
}

TEST_F(ZoneSlotsTest, a_zone_is_never_seen_without_its_overrides_while_all_are_counted_again)
{
    for (std::uint64_t i = 0; i < 2000; ++i) {
        put("key " + std::to_string(i), 5, i);
    }
    put("", 5, 3000);
    const OverrideTable::ZoneSlot* slot = table().slot(zone);
    count_added();
    std::atomic<int> repairs{ 0 };
    std::thread writer([&] {
        while (++repairs < 500) {
            const FleetMemory::Lock lock(memory());
            table().repair();
        }
    });
    int unseen = 0;
    while (repairs < 500) {
        unseen += slot->keys.load() == 0 || slot->whole.load() == 0 ? 1 : 0;
    }
    writer.join();
    EXPECT_EQ(unseen, 0);
    EXPECT_EQ(slot->count(), 2001U);
}

}  // namespace
}  // namespace ratelimit
