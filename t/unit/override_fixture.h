#pragma once

#include "slab_zone.h"
#include "store/fleet_memory.h"

#include <chrono>
#include <string_view>

namespace ratelimit {

/// An override of a rate, which is for a minute.
inline OverrideTable::Entry rate_entry(std::int64_t quota, std::uint64_t version)
{
    Override value;
    value.kind = Override::Kind::rate;
    value.rate = { quota, std::chrono::seconds{ 60 } };
    return { value, version };
}

/// The overrides in the memory of a fleet.
class OverridesTest : public testing::Test {
protected:
    explicit OverridesTest(std::size_t size) : zone_(size) {}

    FleetMemory memory() { return zone_.memory(); }
    OverrideTable table() { return memory().table(); }

    bool put(
        std::string_view key, std::int64_t quota, std::uint64_t version, std::uint64_t of = zone)
    {
        const FleetMemory::Lock lock(memory());
        return table().put(of, key, rate_entry(quota, version));
    }
    void remove(std::string_view key)
    {
        const FleetMemory::Lock lock(memory());
        table().remove(zone, key);
    }

    static inline const std::uint64_t zone = OverrideTable::zone_hash("zone");
    PreparedZone<FleetMemory> zone_;
};

}  // namespace ratelimit
