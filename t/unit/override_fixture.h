#pragma once

#include "slab_zone.h"
#include "store/fleet_memory.h"

#include <string_view>

namespace ratelimit {

/// The memory of a fleet with overrides of the zone "zone".
class OverrideTest : public testing::Test {
protected:
    explicit OverrideTest(std::size_t size) : zone_(size)
    {
        EXPECT_EQ(FleetMemory::init(&zone_.zone(), nullptr), NGX_OK);
    }

    FleetMemory memory() { return FleetMemory(zone_.zone()); }
    OverrideTable table() { return memory().table(); }

    static OverrideTable::Entry entry(std::int64_t quota, std::uint64_t version)
    {
        Override value;
        value.kind = Override::Kind::rate;
        value.rate = { quota, std::chrono::seconds{ 60 } };
        return { value, version };
    }
    bool put(
        std::string_view key, std::int64_t quota, std::uint64_t version, std::uint64_t of = zone)
    {
        const FleetMemory::Lock lock(memory());
        return table().put(of, key, entry(quota, version));
    }
    void remove(std::string_view key)
    {
        const FleetMemory::Lock lock(memory());
        table().remove(zone, key);
    }

    static inline const std::uint64_t zone = OverrideTable::zone_hash("zone");
    SlabZone zone_;
};

}  // namespace ratelimit
